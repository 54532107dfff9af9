package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// TearDown removes the pod's directory with its volumes. It is safe to call again, also after it
// failed half way, and for pods that never were here. What hostPath volumes show is not touched.
func (v *Volumes) TearDown(ctx context.Context, uid types.UID) (err error) {
	defer wrap(&err, "remove files of pod %s", uid)
	return v.emptied(ctx, uid, removePath)
}

// emptied calls remove for the pod's directory once nothing is mounted there and nothing that was
// made for the pod elsewhere is left. The pod's claims are forgotten when that has worked.
func (v *Volumes) emptied(ctx context.Context, uid types.UID,
	remove func(context.Context, string) error) error {
	v.forget(uid)
	v.last.forget(uid)
	dir, err := v.podDir(uid)
	if err != nil {
		return err
	}
	if err := v.unmountBelow(ctx, dir); err != nil {
		return err
	}
	if err := v.release(ctx, uid, dir); err != nil {
		return err
	}
	if err := remove(ctx, dir); err != nil {
		return err
	}
	v.claims.forget(uid)
	return nil
}

// release removes what was made for the pod outside its directory, in which nothing is mounted any
// more.
func (v *Volumes) release(ctx context.Context, uid types.UID, dir string) error {
	all, err := places(dir)
	errs := []error{err}
	for _, p := range all {
		errs = append(errs, v.unstage(ctx, p))
	}
	for _, p := range plugins() {
		if p.tearDown != nil {
			errs = append(errs, p.tearDown(ctx, v, uid))
		}
	}
	return errors.Join(errs...)
}

// wrap says of an error what was being done.
func wrap(err *error, doing string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf(doing+": %w", append(args, *err)...)
	}
}

// Clear is TearDown but for the termination messages: those stay as long as the runtime has
// records of the containers that left them.
func (v *Volumes) Clear(ctx context.Context, uid types.UID) (err error) {
	defer wrap(&err, "remove volumes of pod %s", uid)
	return v.emptied(ctx, uid, removeVolumes)
}

// removeVolumes removes all that is in a pod's directory but the termination messages.
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

// removeVolume removes a volume with what is mounted there.
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

// removePath deletes what is at a path of the agent's own, as removeTree does.
func removePath(ctx context.Context, path string) error {
	parent, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer parent.Close()
	return removeTree(ctx, parent, filepath.Base(path))
}

// removeTree deletes name in parent and all that is below. It follows no link and enters no mount,
// not even one that was made after the list of mounts was read.
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
		// What follows in a directory that just shrank is not defined; start over.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("list %s: %w", dir.Name(), err)
		}
	}
}
