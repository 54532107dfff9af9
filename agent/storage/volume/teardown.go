package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// TearDown removes the pod's directory with its volumes. It may be called again, also after a
// failure half way, and for pods that never had a directory. It does not touch what hostPath
// volumes show.
func (v *Volumes) TearDown(ctx context.Context, uid types.UID) (err error) {
	defer wrap(&err, "remove files of pod %s", uid)
	return v.emptied(ctx, uid, removePath)
}

// emptied unmounts everything in the pod's directory, removes what was made for the pod elsewhere,
// and then calls remove for the directory. If all succeeds, it forgets the pod's PVCs.
func (v *Volumes) emptied(ctx context.Context, uid types.UID,
	remove func(context.Context, string) error) (err error) {
	defer func() { v.remains.cleaned(uid, err) }()
	v.due.forget(uid)
	v.makers.last.forget(uid)
	dir, err := v.node.podDir(uid)
	if err != nil {
		return err
	}
	began := time.Now()
	there, err := places(dir)
	if err != nil {
		return err
	}
	if err := v.node.unmountSubPaths(ctx, dir); err != nil {
		return err
	}
	if held, err := v.makers.release(ctx, uid, dir); err != nil {
		return errors.Join(err, v.node.unmountBelow(ctx, dir, held...))
	}
	if err := v.node.unmountBelow(ctx, dir); err != nil {
		v.operations.stuck(dir, there, began, err)
		return err
	}
	v.operations.ended(uid, there, began)
	if err := v.makers.unstageAll(ctx, uid, dir); err != nil {
		return err
	}
	if err := remove(ctx, dir); err != nil {
		return err
	}
	v.node.pvcs.forget(uid)
	return nil
}

// unmountSubPaths unmounts what containers have of volumes, so that these can be taken back.
func (f filesystems) unmountSubPaths(ctx context.Context, podDir string) error {
	dir := filepath.Join(podDir, subPathsDir)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // then the kernel's list of mounts is not read for it
	}
	return f.unmountBelow(ctx, dir)
}

// release takes back what types have for the pod beside its directory. After an error, held has the
// directories of volumes that must stay mounted.
func (m *makers) release(ctx context.Context, uid types.UID, dir string) (held []string, err error) {
	var errs []error
	for _, p := range plugins() {
		if p.held == nil {
			continue
		}
		if err := p.held.release(ctx, m, uid); err != nil {
			errs = append(errs, err)
			held = append(held, filepath.Join(dir, volumesDir, pathName(p.name)))
		}
	}
	return held, errors.Join(errs...)
}

// leave takes back what a type has of one volume that the pod does not use.
func (m *makers) leave(ctx context.Context, uid types.UID, at place) error {
	if p := typeNamed(at.plugin); p.held != nil && p.held.leave != nil {
		return p.held.leave(ctx, m, uid, at.name)
	}
	return nil
}

// unstageAll undoes the stages of volumes in a pod's directory. Nothing is mounted there any more.
func (m *makers) unstageAll(ctx context.Context, uid types.UID, dir string) error {
	all, err := places(dir)
	errs := []error{err}
	for _, p := range all {
		errs = append(errs, m.unstage(ctx, uid, p))
	}
	return errors.Join(errs...)
}

// wrap adds what was being done to an error.
func wrap(err *error, doing string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf(doing+": %w", append(args, *err)...)
	}
}

// Clear does what TearDown does, but keeps the termination messages: they stay as long as the
// runtime has records of the containers.
func (v *Volumes) Clear(ctx context.Context, uid types.UID) (err error) {
	defer wrap(&err, "remove volumes of pod %s", uid)
	return v.emptied(ctx, uid, removeVolumes)
}

// removeVolumes removes everything in a pod's directory except the termination messages.
func removeVolumes(ctx context.Context, path string) error {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == containersDir {
			continue
		}
		if err := removeTree(ctx, dir, name); err != nil {
			return err
		}
	}
	return nil
}

// removeVolume unmounts and removes a volume.
func (f filesystems) removeVolume(ctx context.Context, path string) error {
	mounted, err := f.isMounted(path)
	if err != nil {
		return err
	}
	errs := []error{f.unmountBelow(ctx, path)}
	if mounted {
		errs = append(errs, f.unmount(ctx, path))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removePath(ctx, path)
}

// removePath calls removeTree for a path of the agent's own.
func removePath(ctx context.Context, path string) error {
	parent, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer parent.Close()
	return removeTree(ctx, parent, filepath.Base(path))
}

// removeTree deletes name in parent and everything below. It follows no link and enters no mount,
// even one that was made after the list of mounts was read.
func removeTree(ctx context.Context, parent *os.File, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := filepath.Join(parent.Name(), name)
	err := unix.Unlinkat(int(parent.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	dir, err := openat2(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("remove %s: still mounted; unmount it first", path)
	case err != nil:
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer dir.Close()
	if err := removeEntries(ctx, dir); err != nil {
		return err
	}
	err = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// removeEntries empties a directory, a bounded number of entries at a time.
func removeEntries(ctx context.Context, dir *os.File) error {
	const batch = 1024
	for {
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", dir.Name(), err)
		}
		for _, name := range names {
			if err := removeTree(ctx, dir, name); err != nil {
				return err
			}
		}
		// The rest of a directory that just shrank is not defined; start over.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("list %s: %w", dir.Name(), err)
		}
	}
}
