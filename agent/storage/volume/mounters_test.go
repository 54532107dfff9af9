package volume

import (
	"os"
	"sync"

	"k8s.io/mount-utils"
)

// linking makes a link in place of each bind mount, so that there is something to look at.
type linking struct{ *mount.FakeMounter }

func (l linking) MountSensitiveWithoutSystemdWithMountFlags(source, target, _ string,
	_, _, _ []string) error {
	if err := os.Remove(target); err != nil {
		return err
	}
	return os.Symlink(source, target)
}

// hanging does not return from mounts of nfs until it is released.
type hanging struct {
	*mount.FakeMounter
	release chan struct{}
	once    sync.Once
	started chan struct{}
}

// began is closed once a mount hangs.
func (h *hanging) began() chan struct{} {
	h.once.Do(func() { h.started = make(chan struct{}) })
	return h.started
}

func (h *hanging) MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string,
	options, sensitive, flags []string) error {
	if fstype == "nfs" {
		close(h.began())
		<-h.release
	}
	return h.FakeMounter.MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype, options,
		sensitive, flags)
}
