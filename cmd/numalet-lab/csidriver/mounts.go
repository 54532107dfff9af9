package csidriver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// mountVolume mounts a volume's file system, made if there is none; it may be mounted there
// already.
func mountVolume(dir, at string, c *csi.VolumeCapability) error {
	if err := os.MkdirAll(at, 0o750); err != nil {
		return err
	}
	if mounted(at) {
		return nil
	}
	device, err := loopOf(image(dir), true)
	if err != nil {
		return err
	}
	kind := cmp.Or(c.GetMount().GetFsType(), "ext4")
	has, err := (&mount.SafeFormatAndMount{Exec: utilexec.New()}).GetDiskFormat(device)
	switch {
	case err != nil:
		return err
	case has == "":
		if err := run("mkfs."+kind, "-q", device); err != nil {
			return err
		}
	case has != kind:
		return invalid("the volume has %s, not %s", has, kind)
	}
	args := []string{"-t", kind, device, at}
	if options := c.GetMount().GetMountFlags(); len(options) > 0 {
		args = append([]string{"-o", strings.Join(options, ",")}, args...)
	}
	return run("mount", args...)
}

// growVolume makes the loop device, and the file system mounted at the path, as large as the image.
func growVolume(dir, at string) error {
	device, err := loopOf(image(dir), false)
	if err != nil {
		return err
	}
	if err := withDevice(device, func(fd int) error {
		return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0)
	}); err != nil {
		return err
	}
	if info, err := os.Stat(at); err != nil || !info.IsDir() {
		return err
	}
	_, err = mount.NewResizeFs(utilexec.New()).Resize(device, at)
	return err
}

// detachVolume ends the volume's loop device, if it has one.
func detachVolume(dir string) error {
	device, err := loopOf(image(dir), false)
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return detach(device)
}

func detach(device string) error {
	return withDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
}

// loopOf returns the loop device of an image; with set it is set up if there is none.
func loopOf(image string, set bool) (string, error) {
	all, err := loops()
	if err != nil {
		return "", err
	}
	for device, of := range all {
		if of == image {
			return device, nil
		}
	}
	if !set {
		return "", absent("%s has no loop device", image)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("losetup %s: %w: %s", image, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// loops returns the images of all loop devices.
func loops() (map[string]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	out := map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		out["/dev/"+name] = strings.TrimSuffix(strings.TrimSpace(string(raw)), " (deleted)")
	}
	return out, err
}

// Sweep unmounts and detaches all loop devices of files in dir, for the end of a test.
func Sweep(dir string) error {
	all, err := loops()
	errs := []error{err}
	for device, of := range all {
		if !strings.HasPrefix(of, dir+"/") {
			continue
		}
		for _, at := range mountsOf(device) {
			errs = append(errs, unix.Unmount(at, unix.MNT_DETACH))
		}
		errs = append(errs, detach(device))
	}
	return errors.Join(errs...)
}

// Loops returns the loop devices of volumes in dir, with their images.
func Loops(dir string) map[string]string {
	all, _ := loops() // the pattern is right
	for device, of := range all {
		if !strings.HasPrefix(of, dir+"/") {
			delete(all, device)
		}
	}
	return all
}

// mounts returns the mounts of this process's mount namespace; none, if they cannot be read.
func mounts() []mount.MountInfo {
	all, _ := mount.ParseMountInfo("/proc/self/mountinfo")
	return all
}

func mountsOf(device string) (points []string) {
	for _, m := range slices.Backward(mounts()) {
		if m.Source == device {
			points = append(points, m.MountPoint)
		}
	}
	return points
}

func mounted(at string) bool {
	return slices.ContainsFunc(mounts(), func(m mount.MountInfo) bool { return m.MountPoint == at })
}

// unmount unmounts whatever is mounted at a path.
func unmount(at string) error {
	for mounted(at) {
		if err := unix.Unmount(at, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
	}
	return nil
}

func bindDir(from, to string, ro bool) error {
	if err := os.MkdirAll(to, 0o750); err != nil {
		return err
	}
	if !mounted(to) {
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", from, to, err)
		}
	}
	return readonly(to, ro)
}

func readonly(at string, ro bool) error {
	if !ro {
		return nil
	}
	return unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func bindFile(from, to string) error {
	if mounted(to) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_CREATE, 0o660)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file.Close()
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// withDevice opens a device for a call about it.
func withDevice(device string, do func(fd int) error) error {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return do(int(file.Fd()))
}

func run(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err,
			bytes.TrimSpace(out))
	}
	return nil
}
