package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// takeLock takes --lock-file, so that one agent at a time works on this node; "" takes none. With
// watch the returned context ends when another process opens or removes the file, so that it
// can take over. release gives the lock back.
func takeLock(ctx context.Context, path string, watch bool) (context.Context, func(), error) {
	if path == "" {
		if watch {
			return nil, nil, errors.New("--exit-on-lock-contention needs --lock-file")
		}
		return ctx, func() {}, nil
	}
	// Whatever has the path's name, nobody waits for it and no link is followed.
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

// watchOpens reports that somebody opens or removes the file (inotify(7)).
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
