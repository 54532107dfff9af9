package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// mapped makes and removes what a pod has of a block volume beside the link in the pod's directory:
// below the node's plugins/ a mount of the device, named after the pod's UID, and a loop device on
// that, which keeps the device from being replaced. For local volumes we make neither; those of a
// pod that a kubelet started are removed with the pod's volumes.
type mapped struct {
	*node
	loops string // /sys/block
	nodes string // /dev
}

// dir returns the directory with a directory for each persistent volume.
func (m mapped) dir() string {
	return filepath.Join(m.root, pluginsDir, pathName(localName), devicesDir)
}

// release removes what belongs to the pod.
func (m mapped) release(ctx context.Context, pod types.UID) (err error) {
	defer wrap(&err, "take back what a kubelet mapped")
	volumes, err := os.ReadDir(m.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, volume := range volumes {
		path := filepath.Join(m.dir(), volume.Name(), string(pod))
		if _, err := os.Lstat(path); err == nil {
			errs = append(errs, m.unmap(ctx, path))
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// unmap ends the loop device on path, unmounts path, and removes the volume's directory if no other
// pod is left in it.
func (m mapped) unmap(ctx context.Context, path string) error {
	if err := m.free(ctx, path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	err := os.Remove(filepath.Dir(path))
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// free ends the loop device on path and unmounts path.
func (m mapped) free(ctx context.Context, path string) error {
	if err := m.endLoops(path); err != nil {
		return err
	}
	mounted, err := m.isMounted(path)
	if err != nil || !mounted {
		return err
	}
	return m.unmount(ctx, path)
}

// hasDevice reports whether a device is mounted on the file, kept open, and linked.
func (m mapped) hasDevice(file, link string) bool {
	mounted, err := m.isMounted(file)
	_, linkErr := filepath.EvalSymlinks(link)
	return err == nil && mounted && linkErr == nil && m.hasLoop(file)
}

// mapDevice mounts a device on a file of the pod's, keeps it open by a loop device, and makes link one
// to it.
func (m mapped) mapDevice(t target, device, file, link string) error {
	if err := m.hold(device, file); err != nil {
		return &operation.Error{Part: operation.MapBlockVolume, Err: err}
	}
	isNew, err := linkTo(device, link)
	if err != nil {
		return &operation.Error{Part: operation.MapBlockVolume, Err: err}
	}
	if isNew {
		m.cfg.Tell(t.pod, v1.EventTypeNormal, "SuccessfulMountVolume", fmt.Sprintf(
			"MapVolume.MapPodDevice succeeded for volume %q globalMapPath %q", t.pv.Name,
			filepath.Dir(file)))
		m.cfg.Tell(t.pod, v1.EventTypeNormal, "SuccessfulMountVolume", fmt.Sprintf(
			"MapVolume.MapPodDevice succeeded for volume %q volumeMapPath %q", t.pv.Name,
			filepath.Dir(link)))
	}
	return nil
}

// loopsOn returns the names of the loop devices on the file at path.
func (m mapped) loopsOn(path string) (out []string, err error) {
	backed, err := filepath.Glob(filepath.Join(m.loops, "loop*", "loop", "backing_file"))
	for _, file := range backed {
		text, err := os.ReadFile(file)
		if err == nil && strings.TrimSuffix(string(text), "\n") == path { // else it ended meanwhile
			out = append(out, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return out, err
}

// endLoops ends the loop devices on the file at path. If others have one open, it ends when they
// close it.
func (m mapped) endLoops(path string) error {
	all, err := m.loopsOn(path)
	errs := []error{err}
	for _, name := range all {
		if err := endLoop(filepath.Join(m.nodes, name)); err != nil {
			errs = append(errs, fmt.Errorf("end loop device %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func endLoop(device string) error {
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) { // it has ended
		return nil
	}
	return err
}
