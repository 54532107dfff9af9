package socket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/numalet/numalet/test/scratch"
)

// Whoever dials as soon as the name is visible is accepted.
func TestAcceptsWhenFirstSeen(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), "kubelet.sock")
	for round := range 1000 {
		first := make(chan error, 1)
		go func() {
			for {
				conn, err := net.Dial("unix", path)
				if err == nil {
					err = conn.Close()
				}
				if !errors.Is(err, fs.ErrNotExist) {
					first <- err
					return
				}
			}
		}()
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-first; err != nil {
			t.Fatalf("round %d: the first who saw the socket was told %v", round, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// No file stays beside the socket, nor in its place after Close.
func TestLeavesNothing(t *testing.T) {
	dir := scratch.Dir(t)
	path := filepath.Join(dir, "s")
	stale, err := net.Listen("unix", beforehand(path)) // left by a killed process
	if err != nil {
		t.Fatal(err)
	}
	defer stale.Close()
	for _, want := range []string{"s", ""} {
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			defer l.UnixListener.Close()
			l.Abandon()
		}
		if got := names(t, dir); got != want {
			t.Errorf("the directory has %q, want %q", got, want)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// A file that has the name stays.
func TestAnothersFileStays(t *testing.T) {
	dir := scratch.Dir(t)
	path := filepath.Join(dir, "kubelet.sock")
	write := func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if _, err := Listen(path); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("listening where a file is: %v", err)
	}
	if got := names(t, dir); got != "kubelet.sock" {
		t.Errorf("the directory has %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil || !l.Gone() {
		t.Fatalf("removed: %v; gone: %t", err, l.Gone())
	}
	write()
	if err := l.Close(); err != nil || names(t, dir) != "kubelet.sock" {
		t.Errorf("closed: %v; the directory has %q", err, names(t, dir))
	}
}

func TestPathTooLong(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), strings.Repeat("s", MaxPath))
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "unix sockets allow") {
		t.Errorf("the error is %v", err)
	}
}

// A socket is made although its directory is emptied meanwhile.
func TestListenWhileOthersRemove(t *testing.T) {
	dir := scratch.Dir(t)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Microsecond):
				_ = os.Remove(filepath.Join(dir, ".p.soc"))
			}
		}
	}()
	for range 200 {
		l, err := Listen(filepath.Join(dir, "p.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	<-ended
}
