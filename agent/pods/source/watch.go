package source

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/await"
)

// watch reports changes of the entries of one directory, without subdirectories.
//
// It uses inotify directly: portable libraries do not report IN_CLOSE_WRITE, the only event that
// distinguishes complete manifests from those being written. See inotify(7).
type watch struct{ file *os.File }

// dirEvent is a change of one entry or, if name is empty, of the directory itself.
type dirEvent struct {
	name string
	mask uint32
}

const (
	// writtenEvents: the content of the entry is complete, or its mode changed.
	writtenEvents = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_ATTRIB
	goneEvents    = unix.IN_DELETE | unix.IN_MOVED_FROM
	// createdEvents precede the content, except for links and directories.
	createdEvents = unix.IN_CREATE
	// lostEvents: the watch no longer sees the directory at its path.
	lostEvents = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT
)

// errWatchLost: the directory was removed or renamed.
var errWatchLost = errors.New("watched directory is gone")

func newWatch(dir string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	file := os.NewFile(uintptr(fd), "inotify")
	mask := uint32(writtenEvents | goneEvents | createdEvents | lostEvents | unix.IN_ONLYDIR)
	if _, err := unix.InotifyAddWatch(fd, dir, mask); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("watch directory %s: %w", dir, err)
	}
	return &watch{file}, nil
}

// run passes on events in the kernel's bursts until ctx ends (nil) or the directory is gone. It
// closes the watch.
func (w *watch) run(ctx context.Context, bursts chan<- []dirEvent) error {
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() })
	defer func() {
		stop()
		_ = w.file.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read inotify: %w", err)
		}
		events := parseEvents(buffer[:n])
		if !await.Send(ctx, bursts, events) {
			return nil
		}
		for _, e := range events {
			if e.mask&lostEvents != 0 {
				return errWatchLost
			}
		}
	}
}

// parseEvents splits inotify's output: wd, mask, cookie and length of the name, 4 bytes each in the
// machine's byte order, then the name padded with zeros.
func parseEvents(b []byte) []dirEvent {
	var events []dirEvent
	for len(b) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(b[4:])
		length := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if length > len(b) {
			break
		}
		name, _, _ := bytes.Cut(b[:length], []byte{0})
		events = append(events, dirEvent{string(name), mask})
		b = b[length:]
	}
	return events
}
