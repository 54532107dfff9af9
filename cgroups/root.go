package cgroups

import (
	"context"
	"errors"
	"fmt"
	"path"
)

// CreateRoot makes a cgroup on this machine that can be a Config's Root, for users that want their
// own tree, such as the playground or a test.
func CreateRoot(root string) error {
	w, err := openRoot(root)
	if err != nil {
		return err
	}
	if err := w.kernel.apply(root, Resources{}); err != nil {
		return fmt.Errorf("make cgroup root %q: %w", root, err)
	}
	return nil
}

// DeleteRoot removes a cgroup of CreateRoot with everything in it. It first kills the processes
// there, until ctx ends. It succeeds if the root does not exist.
func DeleteRoot(ctx context.Context, root string) error {
	w, err := openRoot(root)
	if err != nil {
		return err
	}
	if err := errors.Join(w.killAll(ctx, root), w.kernel.remove(root)); err != nil {
		return fmt.Errorf("delete cgroup root %q: %w", root, err)
	}
	return nil
}

func openRoot(root string) (*writer, error) {
	if !path.IsAbs(root) || path.Clean(root) != root || root == "/" {
		return nil, fmt.Errorf("cgroup root %q: must be a clean absolute path below /", root)
	}
	kernel, err := openHierarchy(defaultMount, "/")
	return &writer{driver: Cgroupfs, kernel: kernel}, err
}
