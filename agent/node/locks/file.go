package locks

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Take locks the --lock-file, so that only one agent works on this node; an empty path takes no
// lock. With watch, the returned context ends when another process opens or removes the file, so
// that it can take over. The returned function releases the lock.
func Take(ctx context.Context, path string, watch bool) (context.Context, func(), error) {
	if path == "" {
		if watch {
			return nil, nil, errors.New("--exit-on-lock-contention needs --lock-file")
		}
		return ctx, func() {}, nil
	}
	// If the path is a FIFO or a link, opening it must not block or follow the link.
	lock := flock.New(path, flock.SetFlag(
		os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK))
	locked, err := awaitLock(ctx, lock)
	if err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w; give another --lock-file", path, err)
	}
	if !locked {
		return nil, nil, fmt.Errorf("lock %s: another agent holds it; stop that one first", path)
	}
	if !watch {
		return ctx, func() { _ = lock.Unlock() }, nil // the process ends next
	}
	events, err := watchOpens(path)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("watch %s: %w", path, err), lock.Unlock())
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		event := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1)
		if _, err := events.Read(event); err == nil {
			klog.FromContext(ctx).Info("Another process wants the lock file, stopping", "path",
				path)
			cancel()
		}
	}()
	return ctx, func() {
		events.Close() // ends the read
		<-done
		cancel()
		_ = lock.Unlock() // the process ends next
	}, nil
}

// watchOpens returns a file that is readable once a process opens or removes path (inotify(7)).
func watchOpens(path string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return events, nil
}
