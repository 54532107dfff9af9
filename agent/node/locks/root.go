// Package locks makes sure that one agent works on a node, and one on a root directory.
package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

// TakeRoot makes sure that this process is the only agent of the root directory: a second one would
// replace the first one's sockets and rewrite its state. It detects another numalet by the lock on
// the directory, a kubelet by its sockets. The kernel releases the lock when the process ends,
// however it ends.
func TakeRoot(ctx context.Context, root string) (release func(), err error) {
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

// endingWait bounds how long we wait for another agent that may be ending. The kernel takes a while
// to release what a killed process held, and an agent that was told to stop finishes its work.
const endingWait = 5 * time.Second

// awaitLock takes the lock, if need be after waiting for its holder. It reports whether it got it.
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

// awaitUnserved waits until no other process serves the sockets of the root directory. After
// endingWait it refuses the directory.
func awaitUnserved(ctx context.Context, root string) error {
	err := checkServed(root)
	if err == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Another agent serves sockets of the root directory, waiting for its "+
		"end", "path", root, "limit", endingWait)
	limit, cancel := context.WithTimeout(ctx, endingWait)
	defer cancel()
	for err != nil && await.For(limit, 20*time.Millisecond) {
		err = checkServed(root)
	}
	return cmp.Or(ctx.Err(), err)
}

// checkServed returns an error if another process serves sockets of the root directory.
func checkServed(root string) error {
	for _, socket := range []string{"device-plugins/kubelet.sock", "pod-resources/kubelet.sock"} {
		path := filepath.Join(root, socket)
		conn, err := net.Dial("unix", path)
		if err != nil {
			continue // the socket does not exist, or is left over
		}
		_ = conn.Close()
		return fmt.Errorf("%s is served already: is a kubelet running? Stop it first, or give "+
			"another --root-dir", path)
	}
	return nil
}
