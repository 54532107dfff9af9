package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/files"
)

// onDevices are the file systems on block devices that local persistent volumes name. Each is
// mounted once for the node, below plugins/ where the kubelet has it, and pods have mounts of that.
// The last of these that goes takes it along.
type onDevices struct {
	layout
	filesystems
	// format mounts a device's file system, and makes one if there is none; "" is its usual type.
	format func(source, target, fstype string, options []string) error
	// turns has a *sync.Mutex for each of the node's few local volumes, by name: who mounts it for a
	// pod has it, and who looks whether pods are left.
	turns sync.Map
}

// newOnDevices formats with the host's mkfs, where the mounter is one that mounts.
func newOnDevices(l layout, f filesystems) *onDevices {
	d := &onDevices{layout: l, filesystems: f}
	if full, can := f.mounter.(mount.Interface); can {
		d.format = mount.NewSafeFormatAndMount(full, exec.New()).FormatAndMount
	}
	return d
}

// path is where the file system of a persistent volume is mounted for the node.
func (d *onDevices) path(volume string) string {
	return filepath.Join(d.root, pluginsDir, localName, "mounts", volume)
}

func (d *onDevices) turn(volume string) *sync.Mutex {
	turn, _ := d.turns.LoadOrStore(volume, &sync.Mutex{})
	return turn.(*sync.Mutex) //nolint:forcetypeassert // of no other type
}

// bind has bind mount the file system that is on the volume's device, which it is told where to find.
func (d *onDevices) bind(t target, bind func(source string) error) error {
	turn := d.turn(t.pv.Name)
	turn.Lock()
	defer turn.Unlock()
	path := d.path(t.pv.Name)
	mounted, err := d.isMounted(path)
	if err != nil {
		return err
	}
	if !mounted {
		if err := os.MkdirAll(path, dirMode); err != nil {
			return err
		}
		local := t.pv.Spec.Local
		err := d.format(local.Path, path, ptr.Deref(local.FSType, ""), t.mountOptions())
		if err != nil {
			return fmt.Errorf("mount the file system on %s: %w", local.Path, err)
		}
	}
	return bind(path)
}

// release unmounts the file system of a volume that a pod is done with, unless another pod has it.
func (d *onDevices) release(ctx context.Context, volume string) (err error) {
	defer wrap(&err, "unmount the device of volume %s", volume)
	turn := d.turn(volume)
	turn.Lock()
	defer turn.Unlock()
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

// releaseAll releases the local volumes among what is in a pod's directory, of which nothing is
// mounted any more.
func (d *onDevices) releaseAll(ctx context.Context, podDir string) error {
	all, err := places(podDir)
	errs := []error{err}
	for _, p := range all {
		if p.plugin == localName {
			errs = append(errs, d.release(ctx, p.name))
		}
	}
	return errors.Join(errs...)
}

// isUsed reports whether a pod has a mount of what is mounted at path.
func (d *onDevices) isUsed(path string) (bool, error) {
	points, err := d.mounter.List()
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	device := ""
	for _, p := range points {
		if plainPath(p.Path) == path {
			device = p.Device
		}
	}
	pods := filepath.Join(d.root, podsDir) + string(filepath.Separator)
	return slices.ContainsFunc(points, func(p mount.MountPoint) bool {
		return p.Device == device && strings.HasPrefix(plainPath(p.Path), pods)
	}), nil
}
