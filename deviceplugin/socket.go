package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// SocketName is the name of the registration socket in the device plugin directory.
const SocketName = "kubelet.sock"

// maxSocketPath is the longest path that a unix socket can have (sun_path in unix(7), without the
// closing zero byte).
const maxSocketPath = 107

// socketPeriod is how often the registration socket is looked for when no event tells of it, and
// how long one that cannot be made is waited for.
const socketPeriod = time.Second

// socket is the registration socket while it is ours.
type socket struct {
	listener net.Listener
	path     string
	file     fs.FileInfo
}

// clearSockets removes the sockets in dir, which plugins take as the sign to register again. Other
// files and directories stay.
func clearSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read device plugin directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSocket == 0 {
			continue
		}
		err := os.Remove(filepath.Join(dir, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old device plugin socket: %w", err)
		}
	}
	return nil
}

// listen binds the registration socket in dir.
func listen(dir string) (*socket, error) {
	path := filepath.Join(dir, SocketName)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("device plugin socket %s: the path has %d bytes, unix sockets "+
			"allow %d: choose a shorter root directory", path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make device plugin directory: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	listener.SetUnlinkOnClose(false) // by then the name may be another's: remove looks
	file, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for device plugins: %w", err), listener.Close())
	}
	return &socket{listener: listener, path: path, file: file}, nil
}

// remove removes the socket, unless it has gone or another one has its name.
func (s *socket) remove() error {
	file, err := os.Lstat(s.path)
	if err != nil || !os.SameFile(file, s.file) {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove device plugin socket: %w", err)
	}
	return nil
}

// gone tells that nothing has the socket's name. Somebody else's socket is left alone.
func (s *socket) gone() bool {
	_, err := os.Lstat(s.path)
	return errors.Is(err, fs.ErrNotExist)
}

// untilGone returns when somebody has removed the socket, or ctx is done.
func (s *socket) untilGone(ctx context.Context) {
	log := klog.FromContext(ctx)
	notify, err := fsnotify.NewWatcher()
	if err == nil {
		defer notify.Close()
		err = notify.Add(filepath.Dir(s.path))
	} else {
		notify = &fsnotify.Watcher{}
	}
	if err != nil {
		log.V(2).Info("Device plugin directory is followed without events", "err", err)
	}
	tick := time.NewTicker(socketPeriod)
	defer tick.Stop()
	for !s.gone() {
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

// listenAgain binds the socket again, with retries until ctx is done: an agent whose pods run does
// not end because a directory cannot be made at the moment.
func listenAgain(ctx context.Context, dir string) *socket {
	trouble := ""
	for ctx.Err() == nil {
		s, err := listen(dir)
		if err == nil {
			return s
		}
		if err.Error() != trouble {
			trouble = err.Error()
			klog.FromContext(ctx).Info("Device plugin socket cannot be made", "err", err)
		}
		sleep(ctx, socketPeriod)
	}
	return nil
}
