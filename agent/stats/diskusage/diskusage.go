// Package diskusage measures what directories use, as du does, and the room on filesystems.
// Containers own these directories and may change them meanwhile: a walk never leaves the directory
// that it was given, neither through a link nor to another filesystem.
package diskusage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSteps bounds the work for one directory: a step for each file in or below it, and for each
// directory on the path to a directory that is read. Larger directories are not measured.
const maxSteps = 1 << 20

// batch is how many entries of a directory are held in memory at once.
const batch = 256

// Usage is the space of a directory and everything below it.
type Usage struct{ Bytes, Inodes uint64 }

// Room describes the space of a filesystem.
type Room struct {
	Capacity, Available, Used      uint64 // bytes
	Inodes, InodesFree, InodesUsed uint64
	Memory                         bool // a tmpfs
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
		InodesUsed: s.Files - min(s.Files, s.Ffree), Memory: s.Type == unix.TMPFS_MAGIC,
	}, nil
}

// walk is one measurement.
type walk struct {
	root   *os.Root
	device uint64
	steps  int
	linked map[uint64]bool // inodes with several names
	todo   []string        // directories to read, relative to the root
	used   Usage
}

// Of measures a directory. Files that disappear meanwhile do not count.
func Of(ctx context.Context, dir string) (Usage, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Usage{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	defer root.Close()
	w := &walk{root: root, linked: map[uint64]bool{}, todo: []string{"."}}
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return Usage{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	w.device = stat.Dev
	w.count(&stat)
	for len(w.todo) > 0 {
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.dir(ctx, next); err != nil {
			return Usage{}, fmt.Errorf("measure %s: %w", dir, err)
		}
	}
	return w.used, nil
}

func (w *walk) dir(ctx context.Context, name string) error {
	w.steps += strings.Count(name, "/") // each of them is opened on the way
	f, err := w.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil // gone, or no longer a directory
	}
	defer f.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, err := f.Readdirnames(batch)
		if w.steps += len(names); w.steps > maxSteps {
			return fmt.Errorf("more than %d files, or too deep", maxSteps)
		}
		for _, n := range names {
			w.entry(f, n, path.Join(name, n))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *walk) entry(in *os.File, name, whole string) {
	var stat unix.Stat_t
	err := unix.Fstatat(int(in.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || stat.Dev != w.device { // gone, or a mount point
		return
	}
	w.count(&stat)
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		w.todo = append(w.todo, whole)
	}
}

func (w *walk) count(stat *unix.Stat_t) {
	if stat.Nlink > 1 && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		if w.linked[stat.Ino] {
			return
		}
		w.linked[stat.Ino] = true
	}
	w.used.Bytes += uint64(stat.Blocks) * 512
	w.used.Inodes++
}
