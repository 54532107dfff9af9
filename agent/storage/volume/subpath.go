package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/files"
)

// mountSubPath makes path in the volume at root available to the runtime and returns where. If path
// does not exist, it makes a directory with the volume's mode.
func (f filesystems) mountSubPath(root, path, target string) (at string, err error) {
	defer wrap(&err, "subPath %q of %s", path, root)
	volume, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", fmt.Errorf("open volume: %w", err)
	}
	defer volume.Close()
	source, err := makeBeneath(volume, path)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
		return "", errors.New("it leads out of the volume through a symbolic link")
	}
	if err != nil {
		return "", err
	}
	defer source.Close()
	if !f.asRoot {
		return os.Readlink(descriptor(source))
	}
	return target, f.bindTo(source, target)
}

// descriptor returns a path to an open file that stays valid if the file is renamed. It works in a
// child process too.
func descriptor(file *os.File) string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())
}

// makeBeneath opens path below root with O_PATH, and makes the missing directories.
func makeBeneath(root *os.File, path string) (*os.File, error) {
	found, err := openBeneath(root, path, unix.O_PATH)
	if !errors.Is(err, unix.ENOENT) {
		return found, err
	}
	parent := root
	if up := filepath.Dir(path); up != "." {
		if parent, err = makeBeneath(root, up); err != nil {
			return nil, err
		}
		defer parent.Close()
	}
	if err := mkdirLike(root, parent, filepath.Base(path)); err != nil {
		return nil, err
	}
	return openBeneath(root, path, unix.O_PATH)
}

// mkdirLike makes a directory in parent with the mode of root, whatever the umask is. An existing
// directory is left unchanged.
func mkdirLike(root, parent *os.File, name string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &stat); err != nil {
		return fmt.Errorf("read mode of volume: %w", err)
	}
	mode := stat.Mode & 0o7777
	err := unix.Mkdirat(int(parent.Fd()), name, mode)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create directory %s: %w", name, err)
	}
	made, err := openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := unix.Fchmod(int(made.Fd()), mode); err != nil {
		return fmt.Errorf("set mode of directory %s: %w", name, err)
	}
	return nil
}

// openBeneath opens path below root; no link leads out of root (openat2(2)).
func openBeneath(root *os.File, path string, flags uint64) (*os.File, error) {
	return openat2(root, path, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
}

func openat2(root *os.File, path string, flags, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	// The kernel returns EAGAIN if a rename anywhere on the machine may have interfered.
	const tries = 64
	for try := 1; ; try++ {
		fd, err := unix.Openat2(int(root.Fd()), path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(root.Name(), path)), nil
		case (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) && try < tries:
			continue
		case errors.Is(err, unix.ENOSYS):
			return nil, fmt.Errorf("this needs Linux 5.6 or newer: %w", err)
		default:
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
	}
}

// bindTo mounts source on target unless it is mounted there already.
func (f filesystems) bindTo(source *os.File, target string) error {
	mounted, err := f.isMounted(target)
	if err != nil {
		return err
	}
	if mounted {
		same, err := sameFile(source, target)
		if err != nil || same {
			return err
		}
		// The name leads to another file now.
		if err := f.mounter.Unmount(target); err != nil {
			return fmt.Errorf("unmount what was there before: %w", err)
		}
	}
	if err := makeTarget(source, target); err != nil {
		return fmt.Errorf("create mount point: %w", err)
	}
	// Without the flag mount(8) would resolve the name again, and might find something else.
	if err := f.mounter.MountSensitiveWithoutSystemdWithMountFlags(descriptor(source), target, "",
		[]string{"bind"}, nil, []string{"--no-canonicalize"}); err != nil {
		return fmt.Errorf("bind mount: %w", err)
	}
	return nil
}

func sameFile(source *os.File, target string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &a); err != nil {
		return false, fmt.Errorf("stat: %w", err)
	}
	if err := unix.Lstat(target, &b); err != nil {
		return false, fmt.Errorf("stat mount point: %w", err)
	}
	return a.Dev == b.Dev && a.Ino == b.Ino, nil
}

// makeTarget makes a mount point of the source's kind, a directory or a file.
func makeTarget(source *os.File, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	info, err := source.Stat()
	if err != nil {
		return err
	}
	// A mount point of the other kind may be left; nothing is mounted on it, so it is empty.
	if old, err := os.Lstat(target); err == nil && old.IsDir() != info.IsDir() {
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if info.IsDir() {
		return os.MkdirAll(target, dirMode)
	}
	return files.Touch(target, 0o640)
}
