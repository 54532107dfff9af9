package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
)

// SocketName is the name of the registration socket in the device plugin directory.
const SocketName = "kubelet.sock"

// socketPeriod is how often the registration socket is checked beside events, and the pause between
// attempts to make it.
const socketPeriod = time.Second

// deprecationName names a file in the device plugin directory that keeps plugins made with
// Kubernetes' stub from registering. No kubelet makes it; earlier versions of numalet did.
const deprecationName = "DEPRECATION"

// clearDir prepares the device plugin directory for registrations. It removes the sockets, which
// tells plugins to register again, and an empty file that keeps plugins from registering. Other
// files and directories stay.
func clearDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read device plugin directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSocket == 0 && !deters(entry) {
			continue
		}
		if err := files.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("clear device plugin directory: %w", err)
		}
	}
	return nil
}

// deters reports whether entry is the file of earlier versions of numalet, which was always empty.
func deters(entry fs.DirEntry) bool {
	if entry.Name() != deprecationName || !entry.Type().IsRegular() {
		return false
	}
	info, err := entry.Info()
	return err == nil && info.Size() == 0
}

// listen makes the registration socket in dir. Plugins register as soon as they see it.
func listen(dir string) (*socket.Listener, error) {
	path := filepath.Join(dir, SocketName)
	if len(path) > socket.MaxPath {
		return nil, fmt.Errorf("device plugin socket %s: the path has %d bytes, unix sockets "+
			"allow %d: choose a shorter root directory", path, len(path), socket.MaxPath)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make device plugin directory: %w", err)
	}
	listener, err := socket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	return listener, nil
}

// untilGone returns when the socket was removed or ctx is done. It leaves a new file of the same name
// alone.
func untilGone(ctx context.Context, s *socket.Listener) {
	log := klog.FromContext(ctx)
	notify, err := fsnotify.NewWatcher()
	if err == nil {
		defer notify.Close()
		err = notify.Add(filepath.Dir(s.Path()))
	} else {
		notify = &fsnotify.Watcher{}
	}
	if err != nil {
		log.V(2).Info("Device plugin directory is followed without events", "err", err)
	}
	tick := time.NewTicker(socketPeriod)
	defer tick.Stop()
	for !s.Gone() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-notify.Events:
		case err := <-notify.Errors:
			log.V(2).Info("Events of the device plugin directory were lost", "err", err)
		}
	}
}

// listenAgain makes the socket again, with retries until ctx is done: an agent with running pods
// does not end because a directory cannot be made at the moment.
func listenAgain(ctx context.Context, dir string) *socket.Listener {
	var wrong complaint.Complaint[string]
	for ctx.Err() == nil {
		s, err := listen(dir)
		if err == nil {
			return s
		}
		if wrong.Begins(err.Error()) {
			klog.FromContext(ctx).Info("Device plugin socket cannot be made", "err", err)
		}
		await.For(ctx, socketPeriod)
	}
	return nil
}
