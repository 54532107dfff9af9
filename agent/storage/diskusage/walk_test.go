package diskusage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// chain makes so many directories, each below the last, whatever the length of their path, and has
// something made in each. The names are all the same.
func chain(t *testing.T, dir, name string, levels int, in func(fd, level int)) {
	t.Helper()
	fd, err := unix.Open(dir, openFlags, 0)
	for level := range levels {
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, openFlags, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
		in(fd, level)
	}
	unix.Close(fd)
}

// deepDir is a directory whose content may be deeper than os.RemoveAll goes.
func deepDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "deep-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("rm", "-rf", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dir
}

func fileAt(t *testing.T, fd int, name string, size int64) {
	t.Helper()
	f, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(f)
	if size > 0 {
		if err := unix.Fallocate(f, 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeep: a file counts however long its path is, and so does what is beside the way to it, before
// and behind.
func TestDeep(t *testing.T) {
	t.Parallel()
	t.Run("longer than PATH_MAX", func(t *testing.T) {
		dir := deepDir(t)
		chain(t, dir, strings.Repeat("x", 250), 18, func(fd, level int) {
			if level == 17 {
				fileAt(t, fd, "big", 8<<20)
			}
		})
		if u := of(t, dir); u.Bytes < 8<<20 || u.Inodes != 20 || u.Partial {
			t.Errorf("it uses %+v; want 8 MiB and 20 inodes", u)
		}
	})
	t.Run("more levels than are held open", func(t *testing.T) {
		const levels = 400
		dir, files := deepDir(t), 0
		chain(t, dir, "d", levels, func(fd, level int) {
			for i := range 1 + level%3 {
				if err := unix.Mkdirat(fd, fmt.Sprint("e", i), 0o700); err != nil {
					t.Fatal(err)
				}
				fileAt(t, fd, fmt.Sprint("e", i, "/file"), 0)
				files += 2
			}
		})
		if u := of(t, dir); u.Inodes != uint64(1+levels+files) || u.Partial {
			t.Errorf("it uses %+v; want %d inodes", u, 1+levels+files)
		}
	})
	t.Run("many chunks, each left and found again", func(t *testing.T) {
		dir, want := deepDir(t), 1
		name := strings.Repeat("n", 200)
		for i := range 400 { // 150 entries are a chunk
			path := filepath.Join(dir, fmt.Sprint(name, i))
			if i%4 > 0 {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				want++
				continue
			}
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			want++
			if i%40 == 0 {
				chain(t, path, "d", 2*window, func(int, int) { want++ })
			}
		}
		if u := of(t, dir); u.Inodes != uint64(want) || u.Partial {
			t.Errorf("it uses %+v; want %d inodes", u, want)
		}
	})
}

// TestMoved: a walk whose way back is gone goes on at the top, and says that it is partial.
func TestMoved(t *testing.T) {
	t.Parallel()
	dir := deepDir(t)
	for _, name := range []string{"a", "b"} {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		chain(t, at, "d", 3*window, func(fd, level int) { fileAt(t, fd, "file", 0) })
	}
	w := begin(t, dir)
	for len(w.levels) < 3*window+2 { // at the bottom of one
		if err := w.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := w.used.Inodes
	for _, name := range []string{"a", "b"} { // one of them is where the walk is
		from := filepath.Join(dir, name, strings.Repeat("d/", window))
		if err := os.Rename(from, filepath.Join(dir, name, "moved")); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; len(w.levels) > 0; i++ {
		if err := w.step(t.Context()); err != nil || i > 10_000 {
			t.Fatalf("after %d steps: %v", i, err)
		}
	}
	if !w.used.Partial || w.used.Inodes < before+3*window {
		t.Errorf("at the bottom it had %d inodes, and then %+v", before, w.used)
	}
}

// begin returns a walk that has entered dir.
func begin(t *testing.T, dir string) *walk {
	t.Helper()
	root, err := unix.Open(dir, openFlags, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{root: root, pace: pace{since: time.Now()}}
	t.Cleanup(w.close)
	if err := w.enter(); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestStaysInside: a walk does not enter what somebody put in the place of a directory while it was
// read, nor what is mounted there.
func TestStaysInside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "swapped")); err != nil {
		t.Fatal(err)
	}
	w := begin(t, dir)
	for _, name := range []string{"swapped", "gone"} {
		if w.down(w.root, name); len(w.levels) != 1 || w.used.Partial {
			t.Errorf("of %s there are %+v, and it uses %+v", name, w.levels, w.used)
		}
	}
	top := begin(t, "/")
	if top.down(top.root, "proc"); len(top.levels) != 1 {
		t.Error("it entered a mount")
	}
}

// TestTooMuch: of a directory with more than a walk holds in memory, it tells what it saw, and that this
// is not all.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := begin(t, dir)
	w.levels = make([]level, maxLevels)
	if w.down(w.root, "a"); !w.used.Partial || len(w.levels) != maxLevels {
		t.Errorf("it went deeper than it may, or says %+v", w.used)
	}
}

// TestEndsEarly: a walk that its context ends has what was counted until then.
func TestEndsEarly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 4 * breath {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if u, _, err := Of(ctx, dir, nil); !errors.Is(err, context.Canceled) || u.Inodes < 2 || !u.Partial {
		t.Errorf("it says %+v, %v", u, err)
	}
}

// TestLinks: files with two names each count once, however many they are, and in whatever order their
// names come.
func TestLinks(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]uint64{"few": 66_000, "more than are remembered": maxLinks + 1000} {
		var c counter
		for i := range 3 * files {
			c.stat = unix.Statx_t{Nlink: 3, Mode: unix.S_IFREG, Ino: i % files, Blocks: 24}
			c.count()
		}
		if c.used.Bytes != files*24*512 || c.used.Inodes != files && c.used.Inodes != files-1 {
			t.Errorf("%s: they use %+v; want %d inodes and %d bytes", name, c.used, files, files*24*512)
		}
		if c.used.Partial || len(c.links) > 0 {
			t.Errorf("%s: %+v, and %d files are remembered", name, c.used, len(c.links))
		}
	}
}
