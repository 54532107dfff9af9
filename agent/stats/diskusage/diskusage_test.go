package diskusage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory is measured with everything below it; a file with two names counts once, the target
// of a link not at all.
func TestUsage(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	write := func(path string, blocks int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, blocks<<16), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "big"), 64)
	write(filepath.Join(dir, "a/b/file"), 2)
	before := of(t, dir)
	if err := os.Link(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if got := of(t, dir); got != before {
		t.Errorf("a second name changed the usage from %+v to %+v", before, got)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := of(t, dir)
	if got.Inodes != before.Inodes+2 || got.Bytes > before.Bytes+8<<10 {
		t.Errorf("with a link and a pipe it is %+v, before %+v: want two inodes more, and nothing "+
			"of where the link leads to", got, before)
	}
	write(filepath.Join(dir, "a/more"), 3)
	if more := of(t, dir); more.Inodes != got.Inodes+1 || more.Bytes < got.Bytes+3<<16 {
		t.Errorf("with 192 KiB more it is %+v, before %+v", more, got)
	}
}

func of(t *testing.T, dir string) Usage {
	t.Helper()
	u, err := Of(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A measurement ends with its context, and fails for a missing directory.
func TestUsageEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Of(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context it says %v", err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if _, err := Of(t.Context(), gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of what is gone it says %v", err)
	}
}

func TestFilesystem(t *testing.T) {
	t.Parallel()
	room, err := Filesystem(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if room.Capacity == 0 || room.Available > room.Capacity || room.Used > room.Capacity {
		t.Errorf("room is %+v", room)
	}
	if shm, err := Filesystem("/dev/shm"); err == nil && !shm.Memory {
		t.Errorf("/dev/shm is not in memory: %+v", shm)
	}
}
