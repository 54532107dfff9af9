package locks

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// We wait for an agent that is ending, not forever for one that goes on running. A waiting agent
// that is told to stop stops.
func TestEndingAgentIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		ends, stops time.Duration // the other agent ends after, the waiting one is told to stop after
		want        string
	}{
		"it ends":      {ends: endingWait - time.Second, stops: time.Hour},
		"it goes on":   {ends: time.Hour, stops: time.Hour, want: "stop"},
		"told to stop": {ends: time.Hour, stops: time.Second, want: "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "lock")
			synctest.Test(t, func(t *testing.T) {
				_, leaveFile, err := Take(t.Context(), file, false)
				if err != nil {
					t.Fatal(err)
				}
				leaveRoot, err := TakeRoot(t.Context(), dir)
				if err != nil {
					t.Fatal(err)
				}
				ended := time.AfterFunc(test.ends, func() {
					leaveFile()
					leaveRoot()
				})
				defer ended.Stop()
				for what, take := range map[string]func(context.Context) (func(), error){
					"root": func(ctx context.Context) (func(), error) { return TakeRoot(ctx, dir) },
					"file": func(ctx context.Context) (func(), error) {
						_, release, err := Take(ctx, file, false)
						return release, err
					},
				} {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(test.stops, cancel)
					release, err := take(ctx)
					if (err == nil) != (test.want == "") ||
						err != nil && !strings.Contains(err.Error(), test.want) {
						t.Errorf("%s: %v, want %q", what, err, test.want)
					}
					if err == nil {
						release()
					}
					cancel()
				}
			})
		})
	}
}

// We also wait for an ending kubelet, which has no lock but sockets.
func TestEndingKubeletIsWaitedFor(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "device-plugins"), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(root, "device-plugins/kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := TakeRoot(ctx, root); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
	defer time.AfterFunc(time.Second, func() { _ = l.Close() }).Stop()
	release, err := TakeRoot(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// If the lock file's path is a FIFO, the agent does not block; if it is a link, it is not followed.
func TestLockFileOfAnotherKind(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	for name, intrude := range map[string]func(path string) error{
		"pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link": func(path string) error { return os.Symlink(target, path) },
	} {
		path := filepath.Join(dir, name)
		if err := intrude(path); err != nil {
			t.Fatal(err)
		}
		_, release, err := Take(t.Context(), path, false)
		if err == nil {
			release()
		}
		if (err != nil) != (name == "link") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link's target: %v", err)
	}
}

// One agent at a time works in a root directory. What a dead one left behind hinders nobody.
func TestTakeRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	release, err := TakeRoot(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	release()

	for _, dir := range []string{"device-plugins", "pod-resources"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(root, dir, "kubelet.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		_, err = TakeRoot(t.Context(), root)
		if err == nil || !strings.Contains(err.Error(), socket) {
			t.Errorf("beside a kubelet: %v", err)
		}
		_ = l.Close() // as if killed: the socket's file stays
		release, err := TakeRoot(t.Context(), root)
		if err != nil {
			t.Fatalf("after a kubelet that was killed: %v", err)
		}
		release()
	}

	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = TakeRoot(t.Context(), file)
	if err == nil || !strings.Contains(err.Error(), "--root-dir") {
		t.Errorf("a file for a root directory: %v", err)
	}
}
