package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"
)

// localName is the name of the type of local volumes.
const localName = "kubernetes.io/local-volume"

// locals are directories of the host, or file systems on its block devices, that persistent volumes
// name. Each pod gets a mount of its own, which is removed with the pod.
func locals() plugin {
	return plugin{from: byPVCs, field: "local", name: localName, relabel: true,
		facts: func(used) facts { return facts{mounted: true} },
		stage: &stage{
			do: func(m *makers, t target) error {
				err := m.devices.stage(t)
				m.cfg.tellMismatch(t, err)
				return err
			},
			undo: func(ctx context.Context, m *makers, volume string) error {
				return m.devices.unstage(ctx, volume)
			},
		},
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			return time.Time{}, m.foreign(ctx, t, func() error {
				shared := m.pvcs.elsewhere(t.pod.UID, t.pv.Name)
				if err := m.staged(ctx, t, m.devices.bind); err != nil {
					return err
				}
				if shared {
					m.cfg.tellShared(t)
				}
				// The first pod has given the volume to its group.
				if !shared && !t.readOnly && m.asRoot {
					if err := m.cfg.giveToGroup(t); err != nil {
						return err
					}
				}
				return t.markReady()
			})
		}}
}

// isOnDevice reports whether a local volume is a block device; else it is a directory.
func (t target) isOnDevice() (bool, error) {
	source := t.pv.Spec.Local.Path
	if slices.Contains(strings.Split(source, "/"), "..") {
		return false, fmt.Errorf("invalid path: %s must not contain '..'", source)
	}
	if source == "" {
		return false, errors.New("the local volume has no path")
	}
	info, err := os.Stat(source)
	if err != nil {
		return false, err
	}
	isDevice := info.Mode()&fs.ModeType == fs.ModeDevice
	if !isDevice && !info.IsDir() {
		return false, fmt.Errorf("local path %s is no directory and no block device", source)
	}
	return isDevice, nil
}

// tellMismatch sends an event if the device has another file system than its volume says.
func (c Config) tellMismatch(t target, err error) {
	failed, is := errors.AsType[mount.MountError](err)
	if is && failed.Type == mount.FilesystemMismatch {
		c.Tell(t.pv, v1.EventTypeWarning, "FailedMountOnFilesystemMismatch",
			fmt.Sprintf("MountVolume failed for volume %q %v", t.pv.Name, err))
	}
}

// tellShared sends an event if other pods use the volume with another group than this pod wants.
func (c Config) tellShared(t target) {
	group := groupOf(t.pod)
	if group == nil {
		return
	}
	if gid, err := groupAt(t.path()); err == nil && gid != *group {
		c.Tell(t.pod, v1.EventTypeWarning, "AlreadyMountedVolume", fmt.Sprintf("The requested "+
			"fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.",
			*group, t.pv.Name, gid))
	}
}
