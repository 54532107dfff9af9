package diskusage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

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
	u, _, err := Of(t.Context(), dir, func() bool { return true })
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
	if _, _, err := Of(ctx, t.TempDir(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context it says %v", err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if _, _, err := Of(t.Context(), gone, nil); !errors.Is(err, os.ErrNotExist) {
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
	if shm, err := Filesystem("/dev/shm"); err == nil && !shm.Tmpfs {
		t.Errorf("/dev/shm is not in memory: %+v", shm)
	}
}

// Of a directory of logs only the files count, and of a log with two names one.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, size := range map[string]int{"0.log": 1 << 16, "0.log.1": 1 << 16, "below/file": 1 << 16} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "0.log"), filepath.Join(dir, "again.log")); err != nil {
		t.Fatal(err)
	}
	u, err := Files(dir)
	if err != nil || u.Inodes != 2 || u.Bytes < 2<<16 || u.Bytes > 2<<16+4096 || u.Partial {
		t.Errorf("files use %+v, %v; want two of 64 KiB", u, err)
	}
	if _, err := Files(filepath.Join(dir, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of what is gone it says %v", err)
	}
}

// BenchmarkOf measures a directory of 10,000 files beside a walk with filepath.Walk, as the
// kubelet's, at the depth of an emptyDir.
func BenchmarkOf(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "pods/7e0c1f0a-9a1f-4a51-8b62-0d4f0f5b1d6e/volumes/"+
		"kubernetes.io~empty-dir/cache")
	for i := range 10_000 {
		sub := filepath.Join(dir, strconv.Itoa(i%100))
		if i < 100 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(sub, strconv.Itoa(i)), []byte("x"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("diskusage", func(b *testing.B) {
		var worked time.Duration
		for b.Loop() {
			_, took, err := Of(b.Context(), dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			worked += took
		}
		b.ReportMetric(float64(worked.Nanoseconds())/float64(b.N), "ns-worked/op")
	})
	b.Run("filepath.Walk", func(b *testing.B) {
		for b.Loop() {
			var bytes int64
			err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
				if err == nil {
					bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
				}
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A device has a capacity; nobody knows how much of it is used.
func TestDevice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "device")
	if _, err := Device(path); err == nil {
		t.Error("no error without a device")
	}
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Device(path); err != nil || got != (Room{Capacity: 4096}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
