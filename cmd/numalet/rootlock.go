package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// takeRoot makes sure that nobody else is the agent of the root directory: a second one would
// replace the first one's sockets and rewrite its state. Of numalets the lock on the directory
// tells, of a kubelet its sockets. The lock is the process's and goes with it, however it ends.
func takeRoot(root string) (release func(), err error) {
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, fmt.Errorf("make directory: %w; give a writable one with --root-dir", err)
	}
	lock := flock.New(root, flock.SetFlag(os.O_RDONLY)) // of a directory
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the root directory %s: %w; give another one with --root-dir",
			root, err)
	}
	if !locked {
		return nil, fmt.Errorf("another numalet runs with root directory %s: stop it first, or "+
			"give this one its own with --root-dir", root)
	}
	if err := checkServed(root); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return func() { _ = lock.Unlock() }, nil // the process ends next
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
