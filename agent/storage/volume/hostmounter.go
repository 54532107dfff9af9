package volume

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// hostMounter runs the host's mount and umount commands.
type hostMounter struct{ *mount.Mounter }

// IsMountPoint asks the kernel whether opening path from its parent would cross a mount
// (openat2(2), RESOLVE_NO_XDEV). It does not touch the mounted file system, which may hang.
func (hostMounter) IsMountPoint(path string) (bool, error) {
	above, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer above.Close()
	found, err := openat2(above, filepath.Base(path), unix.O_PATH|unix.O_NOFOLLOW,
		unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EXDEV) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, found.Close()
}
