// Package files reads and replaces regular files in our own directories. Whatever stands in a
// file's place (a named pipe, a device, a link, an endless file): no call blocks on it, nothing
// behind a link is touched (ReadNamed alone follows links), and no more than a limit is read.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotRegular says that a path is no regular file.
var ErrNotRegular = errors.New("is not a regular file")

// Open opens a regular file without following a link. The flags are those of open(2).
func Open(path string, flags int) (*os.File, error) {
	f, err := open(path, flags|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s %w but a link", path, ErrNotRegular)
	}
	return f, err
}

func open(path string, flags int) (*os.File, error) {
	// O_NONBLOCK: a named pipe without its other end would block for ever.
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read reads a regular file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return read(f, path, limit)
}

// ReadNamed is Read for a file that a user named, which may be a link.
func ReadNamed(path string, limit int64) ([]byte, error) {
	f, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return read(f, path, limit)
}

// read reads the file to its end and closes it.
func read(f *os.File, path string, limit int64) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	if info.Size() <= limit {
		raw.Grow(int(info.Size()) + bytes.MinRead) // one allocation
		_, err = raw.ReadFrom(io.LimitReader(f, limit+1))
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if info.Size() > limit || int64(raw.Len()) > limit { // more can be there than the size says
		return nil, fmt.Errorf("%s is larger than %d MiB", path, limit>>20)
	}
	return raw.Bytes(), nil
}

// Tail returns the last lines of a text file of one of our processes, for people, or the error.
func Tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Replace replaces the content of path in one step: a reader finds either the old content or the new.
// It does not sync.
func Replace(path string, content []byte) error { return replace(path, content, false) }

// Renew replaces a file unless it has the content already. Anything but a file in its place is
// moved aside. It does not sync: it is for files that can be made again.
func Renew(path string, content []byte) error {
	old, err := Read(path, int64(len(content)))
	if err == nil && bytes.Equal(old, content) {
		return nil
	}
	if errors.Is(err, ErrNotRegular) {
		if err := MakeWay(path); err != nil {
			return err
		}
	}
	return Replace(path, content)
}

// ReplaceDurably is Replace with a sync: after a crash a reader finds the old content or the new,
// and the new once this has returned.
func ReplaceDurably(path string, content []byte) error {
	if err := replace(path, content, true); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err == nil {
		defer d.Close()
		err = d.Sync()
	}
	if err != nil {
		return fmt.Errorf("sync directory of %s: %w", path, err)
	}
	return nil
}

func replace(path string, content []byte, sync bool) error {
	name := Temporary(path)
	tmp, err := create(name)
	if err != nil {
		return fmt.Errorf("create temporary file: %w", err)
	}
	_, err = tmp.Write(content)
	if err == nil && sync {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(name, path)
	}
	if err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// MakeWay moves aside what stands in a file's place and is no file, such as a link or a pipe. It
// removes an empty directory.
func MakeWay(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil //nolint:nilerr // opening the file fails then
	}
	if info.IsDir() {
		err := os.Remove(path)
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	_, err = MoveAside(path, time.Now())
	return err
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// MountPath returns a path that the kernel's lists of mounts name, without their escapes (proc(5)).
func MountPath(escaped string) string { return mountEscapes.Replace(escaped) }

// Touch makes an empty file unless there is a file.
func Touch(path string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

// Remove removes a file or an empty directory; it may be gone already.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Pattern returns the pattern of filepath.Glob that only this path matches.
func Pattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Temporary returns the name of the new content of a path while it is written. It is always the
// same, so that a crash leaves at most one; a path must have one writer.
func Temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

// create makes a new file. It removes what has that name, a leftover of a crash, or moves it aside.
func create(name string) (*os.File, error) {
	if err := os.Remove(name); errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if _, err := MoveAside(name, time.Now()); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
}

// MoveAside renames an unusable file, so that it is not overwritten.
func MoveAside(path string, now time.Time) (string, error) {
	aside := path + ".corrupt-" + now.UTC().Format("20060102T150405.000")
	if _, err := os.Lstat(aside); err == nil {
		return "", fmt.Errorf("move %s aside: %s exists", path, aside)
	}
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("move %s aside: %w", path, err)
	}
	return aside, nil
}
