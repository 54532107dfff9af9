package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/files"
)

// onDevices mounts the file systems on block devices that local persistent volumes name. Each is
// mounted once for the node, below plugins/ as by the kubelet; pods get bind mounts of that. It is
// unmounted after the last of these.
type onDevices struct {
	layout
	filesystems
	// format mounts a device's file system, and makes one if there is none. fstype "" is the
	// default type.
	format func(source, target, fstype string, options []string) error
}

// newOnDevices formats with the host's mkfs, if the mounter can mount on the host.
func newOnDevices(l layout, f filesystems) *onDevices {
	d := &onDevices{layout: l, filesystems: f}
	if full, can := f.mounter.(mount.Interface); can {
		d.format = mount.NewSafeFormatAndMount(full, exec.New()).FormatAndMount
	}
	return d
}

// path returns where the file system of a persistent volume is mounted for the node.
func (d *onDevices) path(volume string) string {
	return filepath.Join(d.root, pluginsDir, localName, "mounts", volume)
}

// stage mounts the file system on the volume's device, unless it is mounted or the volume is a
// directory.
func (d *onDevices) stage(t target) error {
	onDevice, err := t.isOnDevice()
	if err != nil || !onDevice || t.have.mounted {
		return err
	}
	path := d.path(t.pv.Name)
	if mounted, err := d.isMounted(path); mounted || err != nil {
		return err
	}
	if err := os.MkdirAll(path, dirMode); err != nil {
		return err
	}
	local := t.pv.Spec.Local
	err = d.format(local.Path, path, ptr.Deref(local.FSType, ""), t.mountOptions())
	if err != nil {
		return fmt.Errorf("mount the file system on %s: %w", local.Path, err)
	}
	return nil
}

// bind makes the pod's mount of a local volume, which is staged.
func (d *onDevices) bind(t target) error {
	onDevice, err := t.isOnDevice()
	if err != nil {
		return err
	}
	source := t.pv.Spec.Local.Path
	if onDevice {
		source = d.path(t.pv.Name)
	}
	return d.mountPod(t, source, "", "bind")
}

// unstage unmounts the file system of a volume, unless a pod has a mount of it.
func (d *onDevices) unstage(ctx context.Context, volume string) (err error) {
	defer wrap(&err, "unmount the device of volume %s", volume)
	path := d.path(volume)
	mounted, err := d.isMounted(path)
	if err != nil {
		return err
	}
	if mounted {
		if used, err := d.isUsed(path); used || err != nil {
			return err
		}
		if err := d.unmount(ctx, path); err != nil {
			return err
		}
	}
	return files.Remove(path)
}

// isUsed reports whether a pod has a mount of the file system that is mounted at path.
func (d *onDevices) isUsed(path string) (bool, error) {
	points, err := d.mounter.List()
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	device := ""
	for _, p := range points {
		if files.MountPath(p.Path) == path {
			device = p.Device
		}
	}
	pods := filepath.Join(d.root, podsDir) + string(filepath.Separator)
	return slices.ContainsFunc(points, func(p mount.MountPoint) bool {
		return p.Device == device && strings.HasPrefix(files.MountPath(p.Path), pods)
	}), nil
}
