package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxLoopTries bounds the loop devices that are tried: others may take a free one first.
const maxLoopTries = 16

// hold mounts a device on a file, and has a loop device keep that open.
func (m mapped) hold(device, file string) error {
	mounted, err := m.isMounted(file)
	if err != nil {
		return err
	}
	if !mounted {
		if err := m.mount(device, file, "", []string{"bind"}); err != nil {
			return fmt.Errorf("mount device %s on %s: %w", device, file, err)
		}
	}
	if m.hasLoop(file) {
		return nil
	}
	for range maxLoopTries {
		if err = m.beginLoop(file); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("keep %s open by a loop device: %w", file, err)
	}
	return nil
}

// hasLoop reports whether there is a loop device on the file at path.
func (m mapped) hasLoop(path string) bool {
	all, err := m.loopsOn(path)
	return err == nil && len(all) > 0
}

// beginLoop makes the next free loop device one on the file at path.
func (m mapped) beginLoop(path string) error {
	control, err := os.OpenFile(filepath.Join(m.nodes, "loop-control"), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return err
	}
	flags := os.O_RDWR
	file, err := os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) { // the device is read-only
		flags = os.O_RDONLY
		file, err = os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	loop, err := os.OpenFile(filepath.Join(m.nodes, fmt.Sprintf("loop%d", n)), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	return unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd()))
}
