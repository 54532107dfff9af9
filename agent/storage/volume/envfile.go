package volume

import (
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

// EnvFile reads a file of environment variables in a volume of the pod. SetUp must have succeeded.
// Containers write there: links may not leave the volume, and only a regular file is opened for
// reading, so that nothing blocks.
func (c Containers) EnvFile(pod *v1.Pod, name, path string) ([]byte, error) {
	all, err := c.pvcs.usedNow(pod)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(u used) bool { return u.volume.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", name)
	}
	dir, err := c.podDir(pod.UID)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenFile(all[at].path(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := openBeneath(root, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open %s of volume %s: %w", path, name, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s of volume %s %w", path, name, files.ErrNotRegular)
	}
	raw, err := io.ReadAll(io.LimitReader(file, cri.MaxEnvFile+1))
	if err == nil && len(raw) > cri.MaxEnvFile {
		err = fmt.Errorf("%s of volume %s has more than %d bytes", path, name, cri.MaxEnvFile)
	}
	return raw, err
}
