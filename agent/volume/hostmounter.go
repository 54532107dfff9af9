package volume

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// hostMounter is the host's mount and umount commands.
type hostMounter struct{ *mount.Mounter }

// IsMountPoint asks the kernel without a look at what is mounted, which may hang: to go there from the
// directory above would be to cross a mount (openat2(2), RESOLVE_NO_XDEV).
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
