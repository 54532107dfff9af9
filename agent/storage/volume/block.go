package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/files"
)

// devicesDir, below a pod's directory, has a link to each block device that a container gets as a
// device.
const devicesDir = "volumeDevices"

// blocks are block devices of the host that containers get as devices, through persistent volumes
// with volumeMode Block.
func blocks() plugin {
	return plugin{from: byPVCs, field: "local", name: localName, block: true,
		path: func(u used) string { return u.pv.Spec.Local.Path },
		held: &held{release: func(ctx context.Context, m *makers, pod types.UID) error {
			return m.mapped.release(ctx, pod)
		}},
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			return time.Time{}, m.foreign(ctx, t, func() error {
				isDevice, err := t.isOnDevice()
				if err == nil && !isDevice {
					err = fmt.Errorf("local path %s is no block device; volumeMode Filesystem takes "+
						"a directory", t.pv.Spec.Local.Path)
				}
				if err != nil {
					return err
				}
				link := t.place().device(t.podDir)
				isNew, err := linkTo(t.pv.Spec.Local.Path, link)
				if isNew {
					m.cfg.Tell(t.pod, v1.EventTypeNormal, "SuccessfulMountVolume", fmt.Sprintf(
						"MapVolume.MapPodDevice succeeded for volume %q volumeMapPath %q", t.pv.Name, link))
				}
				return err
			})
		}}
}

// MapError reports that a pod cannot have a volume as a device.
type MapError struct {
	Volume    string // the persistent volume's name
	Operation string // the part that failed; "": MapBlockVolume
	Err       error
}

func (e *MapError) Error() string {
	return fmt.Sprintf("MapVolume.%s failed for volume %q : %v",
		cmp.Or(e.Operation, "MapBlockVolume"), e.Volume, e.Err)
}

func (e *MapError) Unwrap() error { return e.Err }

// isBlock reports whether containers have the volume as a device.
func isBlock(volume *v1.PersistentVolume) bool {
	return ptr.Deref(volume.Spec.VolumeMode, v1.PersistentVolumeFilesystem) ==
		v1.PersistentVolumeBlock
}

// linkTo makes path a link to the device, and reports whether it was none before.
func linkTo(device, path string) (isNew bool, err error) {
	if to, err := os.Readlink(path); err == nil && to == device {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return false, err
	}
	if err := files.Remove(path); err != nil {
		return false, err
	}
	err = os.Symlink(device, path)
	return err == nil, err
}

// Devices returns the block volumes that the container gets as devices. SetUp must have succeeded.
func (c Containers) Devices(pod *v1.Pod, container *v1.Container) ([]*runtimeapi.Device, error) {
	if len(container.VolumeDevices) == 0 {
		return nil, nil
	}
	podDir, err := c.podDir(pod.UID)
	if err != nil {
		return nil, err
	}
	all, err := c.pvcs.usedNow(pod)
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.Device
	for _, d := range container.VolumeDevices {
		u, err := mounting{pod, container, all}.find(d.Name)
		if err == nil && !u.plugin.block {
			err = errors.New("only a claim with volumeMode Block is a device; use volumeMounts")
		}
		if err != nil {
			return nil, fmt.Errorf("container %q has volume %q as device %s: %w", container.Name,
				d.Name, d.DevicePath, err)
		}
		permissions := "mrw"
		if u.readOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{
			ContainerPath: d.DevicePath, HostPath: u.place().device(podDir),
			Permissions: permissions,
		})
	}
	return out, nil
}
