package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/klog/v2"
)

// takeRoot makes sure that nobody else is the agent of the root directory: a second one would
// replace the first one's sockets and rewrite its state. Of numalets the lock on the directory
// tells, of a kubelet its sockets. The lock is the process's and goes with it, however it ends.
func takeRoot(ctx context.Context, root string) (release func(), err error) {
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, fmt.Errorf("make directory: %w; give a writable one with --root-dir", err)
	}
	lock := flock.New(root, flock.SetFlag(os.O_RDONLY)) // of a directory
	locked, err := awaitLock(ctx, lock)
	if err != nil {
		return nil, fmt.Errorf("lock the root directory %s: %w; give another one with --root-dir",
			root, err)
	}
	if !locked {
		return nil, fmt.Errorf("another numalet runs with root directory %s: stop it first, or "+
			"give this one its own with --root-dir", root)
	}
	if err := awaitUnserved(ctx, root); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return func() { _ = lock.Unlock() }, nil // the process ends next
}

// endingWait is how long an agent that may be ending is waited for: the kernel takes its time to
// let go of what a killed process had, and one that was told to stop finishes what it does.
const endingWait = 5 * time.Second

// awaitLock takes the lock, and waits for whoever holds it. It reports whether it got the lock.
func awaitLock(ctx context.Context, lock *flock.Flock) (bool, error) {
	locked, err := lock.TryLock()
	if locked || err != nil {
		return locked, err
	}
	klog.FromContext(ctx).Info("Another agent holds the lock, waiting for its end",
		"path", lock.Path(), "limit", endingWait)
	limit, cancel := context.WithTimeout(ctx, endingWait)
	defer cancel()
	locked, err = lock.TryLockContext(limit, 20*time.Millisecond)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return locked, err
}

// awaitUnserved waits for the end of whoever serves the sockets of the root directory, and refuses
// the directory if that does not come.
func awaitUnserved(ctx context.Context, root string) error {
	err := checkServed(root)
	if err == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Another agent serves sockets of the root directory, waiting for its "+
		"end", "path", root, "limit", endingWait)
	limit := time.After(endingWait)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return err
		case <-time.After(20 * time.Millisecond):
		}
		if err = checkServed(root); err == nil {
			return nil
		}
	}
}

// checkServed refuses a root directory whose sockets somebody serves.
func checkServed(root string) error {
	for _, socket := range []string{"device-plugins/kubelet.sock", "pod-resources/kubelet.sock"} {
		path := filepath.Join(root, socket)
		conn, err := net.Dial("unix", path)
		if err != nil {
			continue // not there, or left behind
		}
		_ = conn.Close()
		return fmt.Errorf("%s is served already: is a kubelet running? Stop it first, or give "+
			"another --root-dir", path)
	}
	return nil
}
