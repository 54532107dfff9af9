// Package logs serves kubectl logs: a container's output, from the files that its runtime writes.
//
// A log is a sequence of files: the rotated ones, the oldest first and all but the newest of them
// compressed, then the one that is written to. Lines are found across all of them. A follower keeps
// the file it reads open, and recognises it by its inode after a rename. A rotation thus neither
// loses nor repeats a line.
package logs
