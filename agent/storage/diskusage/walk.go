package diskusage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFiles bounds the work for one directory: it counts with so many files at most.
	maxFiles = 1 << 24
	// maxLevels bounds how deep a walk goes, at 24 bytes for each level.
	maxLevels = 1 << 18
	// window is how many directories a walk holds open, with the subdirectories that it is to read.
	window = 32
	// breath is after how many entries a walk looks whether it is to rest or to end.
	breath = 64

	openFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// walk is one measurement.
type walk struct {
	root   int // stays open
	device device
	// levels are all directories from the root to the one that is read; open are the last of them.
	levels  []level
	open    []directory
	entries entries // of the last chunk
	files   int
	counter
	pace
}

type device struct{ major, minor uint32 }

// level is a directory on the way to the one that is read.
type level struct {
	inode uint64
	place // while it is not open
}

// place is where reading a directory goes on. Of the entries there the first known ones are counted,
// and only the subdirectories among them are not.
type place struct {
	offset int64
	known  int
}

// directory is an open directory.
type directory struct {
	fd   int
	todo []below // subdirectories of the last chunk that are to be read
	next place   // after the last chunk
}

// below is a subdirectory, and the place of its entry.
type below struct {
	name string
	place
}

// Of measures a directory, and returns for how long it worked. Files that disappear meanwhile do
// not count. The walk rests now and then, and less while hurries says so; nil: it never does. If ctx
// ends, it returns an error and what was counted until then.
func Of(ctx context.Context, dir string, hurries func() bool) (u Usage, worked time.Duration,
	err error) {
	w := &walk{pace: pace{since: time.Now(), hurries: hurries}}
	if w.root, err = unix.Open(dir, openFlags, 0); err != nil {
		return Usage{}, 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	defer w.close()
	err = w.enter()
	for err == nil && len(w.levels) > 0 && w.files <= maxFiles {
		err = w.step(ctx)
	}
	w.used.Partial = w.used.Partial || len(w.levels) > 0
	worked = w.worked + time.Since(w.since)
	if err != nil {
		return w.used, worked, fmt.Errorf("measure %s: %w", dir, err)
	}
	return w.used, worked, nil
}

// enter begins with the root.
func (w *walk) enter() error {
	fd, err := unix.Openat(w.root, ".", openFlags, 0)
	if err != nil {
		return err
	}
	w.open = append(make([]directory, 0, window), directory{fd: fd})
	if err := w.look(fd, here, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	w.device = device{w.stat.Dev_major, w.stat.Dev_minor}
	w.levels = append(w.levels, level{inode: w.stat.Ino})
	w.count()
	return nil
}

// close closes all that is open.
func (w *walk) close() {
	for _, d := range w.open {
		_ = unix.Close(d.fd)
	}
	_ = unix.Close(w.root)
}

// step reads a subdirectory of the last chunk, or the next chunk, or goes up. It returns an error only
// if ctx ends.
func (w *walk) step(ctx context.Context) error {
	d := &w.open[len(w.open)-1]
	if len(d.todo) > 0 {
		next := d.todo[0].name
		d.todo = d.todo[1:]
		w.down(d.fd, next)
		return w.rest(ctx)
	}
	if w.entries.read(d.fd, &w.used.Partial) {
		return w.chunk(ctx, d)
	}
	w.up()
	return w.rest(ctx)
}

// chunk counts the entries that were read of a directory.
func (w *walk) chunk(ctx context.Context, d *directory) error {
	read := 0
	for e := range w.entries.all(&d.next.offset) {
		counted := d.next.known > 0
		d.next.known = max(d.next.known-1, 0)
		if w.directory(d.fd, e, counted) {
			d.todo = append(d.todo, below{string(e.text), place{e.from, read}})
		}
		if read++; read%breath == 0 {
			if err := w.rest(ctx); err != nil {
				return err
			}
		}
	}
	w.files += read
	for i := range d.todo {
		d.todo[i].known = read - d.todo[i].known + d.next.known
	}
	return nil
}

// directory counts an entry unless it is counted, and reports whether it is a directory to read.
func (w *walk) directory(fd int, e entry, counted bool) bool {
	if counted {
		return e.kind == unix.DT_DIR || e.kind == unix.DT_UNKNOWN
	}
	if w.look(fd, e.name, 0) != nil || w.foreign() {
		return false // gone, or a mount point
	}
	w.count()
	return w.stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// foreign reports whether what was looked at is on another filesystem.
func (w *walk) foreign() bool {
	return device{w.stat.Dev_major, w.stat.Dev_minor} != w.device
}

// down enters a subdirectory.
func (w *walk) down(parent int, name string) {
	if len(w.levels) >= maxLevels {
		w.used.Partial = true
		return
	}
	how := unix.OpenHow{Flags: openFlags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(parent, name, &how)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat2(parent, name, &how)
	}
	switch {
	case err == nil:
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EXDEV):
		return // gone, or something else by now
	default:
		w.used.Partial = true
		return
	}
	if w.look(fd, here, unix.AT_EMPTY_PATH) != nil || w.foreign() {
		_ = unix.Close(fd)
		return
	}
	if len(w.open) == window {
		w.leave()
	}
	w.levels = append(w.levels, level{inode: w.stat.Ino})
	w.open = append(w.open, directory{fd: fd})
}

// leave closes the directory that is farthest from the one that is read, and remembers its place.
func (w *walk) leave() {
	d := w.open[0]
	of := &w.levels[len(w.levels)-len(w.open)]
	if of.place = d.next; len(d.todo) > 0 {
		of.place = d.todo[0].place
	}
	_ = unix.Close(d.fd)
	w.open = w.open[:copy(w.open, w.open[1:])]
}

// up goes back to the parent. If it is not where it was, the walk goes on at the root.
func (w *walk) up() {
	last := w.open[len(w.open)-1].fd
	w.open, w.levels = w.open[:len(w.open)-1], w.levels[:len(w.levels)-1]
	defer unix.Close(last)
	if len(w.open) > 0 || len(w.levels) == 0 || w.reopen(last, "..") {
		return
	}
	w.used.Partial = true
	if w.levels = w.levels[:1]; !w.reopen(w.root, ".") {
		w.levels = nil
	}
}

// reopen opens the last of the levels where it was left, and reports whether it is the same.
func (w *walk) reopen(at int, name string) bool {
	fd, err := unix.Openat(at, name, openFlags, 0)
	if err != nil {
		return false
	}
	of := w.levels[len(w.levels)-1]
	err = w.look(fd, here, unix.AT_EMPTY_PATH)
	if err == nil {
		_, err = unix.Seek(fd, of.offset, io.SeekStart)
	}
	if err != nil || w.foreign() || w.stat.Ino != of.inode {
		_ = unix.Close(fd)
		return false
	}
	w.open = append(w.open, directory{fd: fd, next: of.place})
	return true
}
