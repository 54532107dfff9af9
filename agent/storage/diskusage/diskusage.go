package diskusage

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Usage is the space of a directory and everything below it.
type Usage struct {
	Bytes, Inodes uint64
	// Partial: at least so much, since there is more that could not be read, or too much to read it.
	Partial bool
}

// Add returns the sum of both usages; it is partial if one of them is.
func (u Usage) Add(other Usage) Usage {
	return Usage{u.Bytes + other.Bytes, u.Inodes + other.Inodes, u.Partial || other.Partial}
}

// Room describes the space of a filesystem.
type Room struct {
	Capacity, Available, Used      uint64 // bytes
	Inodes, InodesFree, InodesUsed uint64
	// Tmpfs and Huge are filesystems in memory: tmpfs and hugetlbfs.
	Tmpfs, Huge bool
}

// Usage returns what is used of the filesystem.
func (r Room) Usage() Usage { return Usage{Bytes: r.Used, Inodes: r.InodesUsed} }

// Device returns the room on the block device at path: only its capacity is known.
func Device(path string) (Room, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Room{}, fmt.Errorf("look at block device: %w", err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Room{}, fmt.Errorf("look at block device %s: %w", path, err)
	}
	return Room{Capacity: uint64(size)}, nil
}

// Filesystem returns the room on the filesystem of path.
func Filesystem(path string) (Room, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Room{}, fmt.Errorf("look at filesystem of %s: %w", path, err)
	}
	size := uint64(s.Bsize)
	return Room{
		Capacity: s.Blocks * size, Available: s.Bavail * size,
		Used: (s.Blocks - min(s.Blocks, s.Bfree)) * size, Inodes: s.Files, InodesFree: s.Ffree,
		InodesUsed: s.Files - min(s.Files, s.Ffree),
		Tmpfs:      s.Type == unix.TMPFS_MAGIC, Huge: s.Type == unix.HUGETLBFS_MAGIC,
	}, nil
}

// Files measures the files of a directory, without the directory and what is below others.
func Files(dir string) (u Usage, err error) {
	fd, err := unix.Open(dir, openFlags, 0)
	if err != nil {
		return Usage{}, fmt.Errorf("measure files of %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var c counter
	var all entries
	var place int64
	files := 0
	for files <= maxFiles && all.read(fd, &c.used.Partial) {
		for e := range all.all(&place) {
			files++
			if c.look(fd, e.name, 0) == nil && c.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
				c.count()
			}
		}
	}
	c.used.Partial = c.used.Partial || files > maxFiles
	return c.used, nil
}
