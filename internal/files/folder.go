package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MakeFolder makes a directory, and those above it, unless there is one or a link to one. Anything else
// in its place is moved aside, with now in its name: the directory is there then beside an *Unusable.
// Anything else in the place of a directory above stays, and is an error.
func MakeFolder(path string, mode os.FileMode, now time.Time) error {
	made := os.MkdirAll(path, mode)
	if made == nil {
		return nil
	}
	above, err := os.Stat(filepath.Dir(path))
	if err != nil || !above.IsDir() {
		return made
	}
	if _, err := os.Lstat(path); err != nil { // it could not be made
		return made
	}
	moved := SetAside(path, now, made)
	if !errors.Is(moved, ErrUnusable) {
		return moved
	}
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return moved
}

// Folder is an open directory, reached without following links. It stays the same directory if parts of
// its path are replaced later.
type Folder struct{ f *os.File }

// OpenFolder opens a directory below root. root may be a link, nothing below it may.
func OpenFolder(root, path string) (*Folder, error) {
	within, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(within) {
		return nil, fmt.Errorf("%s is not below %s", path, root)
	}
	at, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	name := root
	for part := range strings.SplitSeq(within, "/") {
		name = filepath.Join(name, part)
		fd, err := unix.Openat(int(at.Fd()), part,
			unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			err = fmt.Errorf("is no directory but a link or a file; remove it: %w", err)
		}
		if closed := at.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", name, err)
		}
		at = os.NewFile(uintptr(fd), name)
	}
	return &Folder{at}, nil
}

// Close closes the directory.
func (d *Folder) Close() error { return d.f.Close() }

// Path returns a path to a file in the directory, wherever the directory is by now.
func (d *Folder) Path(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.f.Fd(), name)
}

// Names returns the names of at most most entries.
func (d *Folder) Names(most int) ([]string, error) {
	f, err := os.Open(d.Path("."))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(most)
}

// Open opens a regular file in the directory that has only this name: a file with further names may
// belong to another owner.
func (d *Folder) Open(name string) (*os.File, error) {
	f, err := Open(d.Path(name), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !Sole(info) {
		return nil, errors.Join(fmt.Errorf("%s has other names too (hard links)",
			filepath.Join(d.f.Name(), name)), err, f.Close())
	}
	return f, nil
}

// Sole reports whether info is of a regular file with one name, or none while it is being removed.
func Sole(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().IsRegular() && s.Nlink <= 1
}
