// Package diskusage measures what directories use, as du does, and the room on filesystems.
//
// Containers own these directories, may make them as deep and as wide as the filesystem allows, and
// may change them meanwhile. A walk takes one step at a time, by names and open directories, so that
// no path is too long for it:
//
//	     .--------- its next subdirectory, opened by name -------.
//	     v                                                       |
//	read a chunk of entries ----> count each ----> subdirectories of the chunk
//	     ^                                                       |
//	     '------ back to the parent, where it stopped <---- none are left
//
// It holds few directories open, those nearest to where it is. Of others it remembers the inode and
// the place of the next entry, and comes back through "..", which has to lead to that inode. If it
// does not, the pod has moved directories: the walk goes on at the top, and says that it is partial.
//
// A walk never leaves the directory that it was given, neither through a link nor to another
// filesystem or mount, opens nothing but directories, and asks no server for the attributes of a file.
package diskusage
