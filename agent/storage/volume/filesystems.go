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

	"k8s.io/mount-utils"

	"github.com/numalet/numalet/internal/files"
)

// Mounter mounts and unmounts; k8s.io/mount-utils has one for the host and one in memory.
type Mounter interface {
	Mount(source, target, fstype string, options []string) error
	MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string,
		options, sensitiveOptions, mountFlags []string) error
	Unmount(target string) error
	// IsMountPoint reports whether something is mounted there, bind mounts included; the error is
	// fs.ErrNotExist if nothing is there at all. It does not ask what is mounted.
	IsMountPoint(path string) (bool, error)
	List() ([]mount.MountPoint, error)
}

// filesystems changes the node's file systems.
type filesystems struct {
	mounter Mounter
	asRoot  bool // without root there are no mounts, and no files of other users
	calls   *calls
}

// mount mounts without a systemd scope of its own: these mounts end with the pod. Pods name
// sources, and mount(8) would read one that begins with '-' as an option: with -T, which reads the
// mounts from a file, a pod could get any directory of the host.
func (f filesystems) mount(source, target, fstype string, options []string) error {
	if strings.HasPrefix(source, "-") {
		return fmt.Errorf("mount %s: what is mounted cannot begin with '-'", source)
	}
	return f.mounter.MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype, options,
		nil, nil)
}

// mountPod makes the pod's mount of a volume at its path, read-only if the volume is, unless there
// is a mount: one that hung may have come back since the pod's directory was looked at.
func (f filesystems) mountPod(t target, source, fstype string, options ...string) error {
	if mounted, err := f.isMounted(t.path()); mounted || err != nil {
		return err
	}
	if t.readOnly {
		options = append(options, "ro")
	}
	if err := os.MkdirAll(t.path(), dirMode); err != nil {
		return err
	}
	return f.mount(source, t.path(), fstype, t.mountOptions(options...))
}

// foreign calls setUp for a volume whose file system may hang: a server's, or an unknown one. The
// caller waits until ctx ends, and tries again later.
func (f filesystems) foreign(ctx context.Context, t target, setUp func() error) error {
	return f.calls.do(ctx, "mount "+t.path(), setUp)
}

// isMounted reports whether something is mounted on path itself.
func (f filesystems) isMounted(path string) (bool, error) {
	mounted, err := f.mounter.IsMountPoint(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("see what is mounted on %s: %w", path, err)
	}
	return mounted, nil
}

// mountsBelow returns the mount points below dir, the deepest first, each as often as it is mounted
// over.
func (f filesystems) mountsBelow(dir string) ([]string, error) {
	points, err := f.mounter.List()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var out []string
	for _, point := range points {
		if path := files.MountPath(point.Path); strings.HasPrefix(path, dir+"/") {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// unmountBelow unmounts everything below dir but for what is below held, and goes on after a failure.
func (f filesystems) unmountBelow(ctx context.Context, dir string, held ...string) error {
	mounts, err := f.mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range mounts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if slices.ContainsFunc(held, func(h string) bool { return strings.HasPrefix(path, h+"/") }) {
			continue
		}
		if err := f.unmount(ctx, path); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

const (
	// unmountWait bounds one unmount. After unmountPatience umount(8) is told to use force, which
	// ends what hangs on a server that is gone.
	unmountWait     = 30 * time.Second
	unmountPatience = 10 * time.Second
)

// unmount unmounts path. It waits for a hanging file system at most unmountWait.
func (f filesystems) unmount(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	return f.calls.do(ctx, "unmount "+path, func() error {
		if force, can := f.mounter.(mount.MounterForceUnmounter); can {
			return force.UnmountWithForce(path, unmountPatience)
		}
		return f.mounter.Unmount(path)
	})
}
