// Package socket makes unix sockets for clients that wait for a file: the name appears once the
// socket accepts, not between bind and listen, when it still refuses.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/files"
)

// MaxPath is the longest path of a unix socket in bytes (sun_path in unix(7), without the final
// zero byte).
const MaxPath = 107

// Listener is a listening socket. Close removes the file, unless the file has gone or is another
// one.
type Listener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// Listen makes a socket that accepts as soon as its name is visible. It fails if a file of that
// name exists, and leaves that file alone. It removes what an interrupted earlier call left behind.
func Listen(path string) (*Listener, error) { return ListenAs(path, 0) }

// ListenAs is Listen with a file mode, which holds as soon as the name is visible; 0: what the
// umask leaves. It begins anew if its file is removed before it has its name: an agent that starts empties
// the directory of device plugins.
func ListenAs(path string, mode fs.FileMode) (l *Listener, err error) {
	const most = 10
	for range most {
		if l, err = listenOnce(path, mode); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return l, err
}

func listenOnce(path string, mode fs.FileMode) (*Listener, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, unix sockets allow %d", path,
			len(path), MaxPath)
	}
	before := beforehand(path)
	if err := files.Remove(before); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	unnamed, err := net.ListenUnix("unix", &net.UnixAddr{Name: before, Net: "unix"})
	if err != nil {
		return nil, err // says "listen unix PATH: why"
	}
	unnamed.SetUnlinkOnClose(false) // Close checks whose the name is
	l := &Listener{UnixListener: unnamed, path: path}
	if mode != 0 {
		err = os.Chmod(before, mode)
	}
	if err == nil {
		l.file, err = os.Lstat(before)
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, before, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), unnamed.Close(),
			os.Remove(before))
	}
	return l, nil
}

// beforehand returns a name beside path, no longer than path, that no client looks for.
func beforehand(path string) string {
	dir, name := filepath.Split(path)
	return dir + "." + name[:max(1, len(name)-1)]
}

// Path returns the socket's path.
func (l *Listener) Path() string { return l.path }

// Gone reports whether no file has the socket's name any more.
func (l *Listener) Gone() bool {
	_, err := os.Lstat(l.path)
	return errors.Is(err, fs.ErrNotExist)
}

// Abandon makes Close leave the file, as a killed process does.
func (l *Listener) Abandon() { l.file = nil }

// Close implements net.Listener.
func (l *Listener) Close() error {
	return errors.Join(l.remove(), l.UnixListener.Close())
}

func (l *Listener) remove() error {
	file, err := os.Lstat(l.path)
	if err != nil || !os.SameFile(file, l.file) {
		return nil
	}
	return files.Remove(l.path)
}
