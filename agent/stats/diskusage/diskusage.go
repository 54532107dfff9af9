// Package diskusage measures what directories use, as du does, and the room on filesystems.
// Containers own these directories and may change them meanwhile: a walk never leaves the directory
// that it was given, neither through a link nor to another filesystem, and asks no server for the
// attributes of a file.
package diskusage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/await"
)

const (
	// maxFiles bounds the work for one directory: it counts with so many files at most.
	maxFiles = 1 << 24
	// maxWaiting bounds the memory of a walk: directories that are still to be read, and files with
	// several names.
	maxWaiting = 1 << 16
	// batch is how many entries of a directory are held in memory at once.
	batch = 512
	// A walk that has worked for slice rests for idle times as long, so that it takes an eighth of
	// one CPU, and in a hurry as long as it worked. One that waits for a slow disk rests at most longest.
	slice, idle, longest = 5 * time.Millisecond, 7, 50 * time.Millisecond
)

// Usage is the space of a directory and everything below it.
type Usage struct {
	Bytes, Inodes uint64
	// Partial: there is more that could not be read, or too much to read it.
	Partial bool
}

// Add adds what somebody else uses.
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

// statMask names the attributes that a walk needs. Those of a file on another machine are the ones
// known here, if any (AT_STATX_DONT_SYNC).
const (
	statMask  = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	statFlags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
)

// walk is one measurement.
type walk struct {
	root   *os.File
	device device
	files  int
	linked map[uint64]bool // inodes with several names
	todo   []string        // directories to read, relative to the root
	stat   unix.Statx_t
	since  time.Time // the last rest
	worked time.Duration
	used   Usage
	// hurries reports whether the walk is in a hurry now.
	hurries func() bool
}

type device struct{ major, minor uint32 }

// Of measures a directory, and returns for how long it worked. Files that disappear meanwhile do
// not count. The walk rests now and then, and less while hurries says so; nil: it never does.
func Of(ctx context.Context, dir string, hurries func() bool) (u Usage, worked time.Duration,
	err error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Usage{}, 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	defer root.Close()
	w := &walk{root: root, linked: map[uint64]bool{}, todo: []string{"."}, since: time.Now(),
		hurries: hurries}
	err = unix.Statx(int(root.Fd()), "", statFlags|unix.AT_EMPTY_PATH, statMask, &w.stat)
	if err != nil {
		return Usage{}, 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	w.device = device{w.stat.Dev_major, w.stat.Dev_minor}
	w.count()
	for len(w.todo) > 0 && w.files <= maxFiles {
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.dir(ctx, next); err != nil {
			return Usage{}, w.worked, fmt.Errorf("measure %s: %w", dir, err)
		}
	}
	w.used.Partial = w.used.Partial || len(w.todo) > 0 || w.files > maxFiles
	return w.used, w.worked + time.Since(w.since), nil
}

// Files measures the files of a directory, without the directory and what is below others.
func Files(dir string) (u Usage, err error) {
	in, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Usage{}, fmt.Errorf("measure files of %s: %w", dir, err)
	}
	defer in.Close()
	w := &walk{linked: map[uint64]bool{}}
	for w.files <= maxFiles {
		names, err := in.Readdirnames(batch)
		if len(names) == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				return w.used, nil
			}
			return w.used, fmt.Errorf("measure files of %s: %w", dir, err)
		}
		w.files += len(names)
		for _, name := range names {
			if w.look(in, name) && w.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
				w.count()
			}
		}
	}
	w.used.Partial = true
	return w.used, nil
}

// dir counts what is in a directory. It returns an error only if ctx ends.
func (w *walk) dir(ctx context.Context, name string) error {
	in, err := w.open(name)
	switch {
	case err == nil:
		defer in.Close()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EXDEV):
		return nil // gone, or something else by now
	default:
		w.used.Partial = true
		return nil
	}
	for w.files <= maxFiles {
		names, err := in.Readdirnames(batch)
		w.files += len(names)
		for _, n := range names {
			w.entry(in, n, name)
		}
		if err := w.rest(ctx); err != nil {
			return err
		}
		if len(names) == 0 {
			w.used.Partial = w.used.Partial ||
				err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrNotExist)
			return nil
		}
	}
	return nil
}

// open opens a directory below the root. A pod that renames directories meanwhile makes the kernel
// say EAGAIN.
func (w *walk) open(name string) (in *os.File, err error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	for range 8 {
		var fd int
		if fd, err = unix.Openat2(int(w.root.Fd()), name, &how); err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return nil, err
}

// look reads the attributes of a file, and reports whether it is there.
func (w *walk) look(in *os.File, name string) bool {
	return unix.Statx(int(in.Fd()), name, statFlags, statMask, &w.stat) == nil
}

func (w *walk) entry(in *os.File, name, parent string) {
	if !w.look(in, name) || (device{w.stat.Dev_major, w.stat.Dev_minor}) != w.device {
		return // gone, or a mount point
	}
	w.count()
	if w.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if len(w.todo) >= maxWaiting {
		w.used.Partial = true
		return
	}
	w.todo = append(w.todo, path.Join(parent, name))
}

// count adds the file that was looked at, once if it has several names.
func (w *walk) count() {
	if w.stat.Nlink > 1 && w.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		if w.linked[w.stat.Ino] {
			return
		}
		if len(w.linked) >= maxWaiting {
			w.used.Partial = true // it may have been counted, or not
			return
		}
		w.linked[w.stat.Ino] = true
	}
	w.used.Bytes += w.stat.Blocks * 512
	w.used.Inodes++
}

// rest pauses a walk that has worked for a while.
func (w *walk) rest(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Since(w.since)
	if now < slice {
		return nil
	}
	w.worked += now
	pause := idle * now
	if w.hurries != nil && w.hurries() {
		pause = now
	}
	if !await.For(ctx, min(pause, longest)) {
		return ctx.Err()
	}
	w.since = time.Now()
	return nil
}
