package diskusage

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the memory for files with several names, of which not all were seen yet.
const maxLinks = 1 << 18

// statMask names the attributes that are needed. Those of a file on another machine are the ones
// known here, if any (AT_STATX_DONT_SYNC).
const (
	statMask  = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	statFlags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
)

// counter counts files.
type counter struct {
	used Usage
	// links has, of files with several names of which some were seen, how many names are to come. Since
	// it was full, shares is set: of further files each name counts its part, and all names together
	// the whole file.
	links  map[uint64]uint32
	shares bool
	parts  uint64       // of an inode, in units of 2^-64
	stat   unix.Statx_t // of the file that was looked at
}

// here is the empty name (AT_EMPTY_PATH).
var here = new(byte)

// look reads the attributes of a file. The name ends with a zero.
func (c *counter) look(dir int, name *byte, flags int) error {
	for {
		_, _, e := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)),
			uintptr(statFlags|flags), statMask, uintptr(unsafe.Pointer(&c.stat)), 0)
		switch e {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return e
		}
	}
}

// count adds the file that was looked at, once if it has several names.
func (c *counter) count() {
	size, names := c.stat.Blocks*512, c.stat.Nlink
	if names < 2 || c.stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		c.used.Bytes += size
		c.used.Inodes++
		return
	}
	switch left := c.links[c.stat.Ino]; {
	case left > 1:
		c.links[c.stat.Ino] = left - 1
	case left == 1:
		delete(c.links, c.stat.Ino)
	case c.shares || len(c.links) >= maxLinks:
		c.shares = true
		c.used.Bytes += (size + uint64(names) - 1) / uint64(names)
		whole, carry := bits.Add64(c.parts, (1<<63)/uint64(names)*2, 0)
		c.parts, c.used.Inodes = whole, c.used.Inodes+carry
	default:
		if c.links == nil {
			c.links = map[uint64]uint32{}
		}
		c.links[c.stat.Ino] = names - 1
		c.used.Bytes += size
		c.used.Inodes++
	}
}
