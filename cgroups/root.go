package cgroups

import (
	"context"
	"errors"
	"fmt"
	"path"
)

// CreateRoot makes a cgroup on this machine that can be a Config's Root, for who wants a tree of
// its own instead of the machine's: the playground, a test.
func CreateRoot(root string) error {
	t, err := openRoot(root)
	if err != nil {
		return err
	}
	if err := t.kernel.apply(root, Resources{}); err != nil {
		return fmt.Errorf("make cgroup root %q: %w", root, err)
	}
	return nil
}

// DeleteRoot removes what CreateRoot made with everything in it, and first kills the processes
// there, until ctx ends. A root that does not exist is deleted.
func DeleteRoot(ctx context.Context, root string) error {
	t, err := openRoot(root)
	if err != nil {
		return err
	}
	if err := errors.Join(t.killAll(ctx, root), t.kernel.remove(root)); err != nil {
		return fmt.Errorf("delete cgroup root %q: %w", root, err)
	}
	return nil
}

func openRoot(root string) (*Tree, error) {
	if !path.IsAbs(root) || path.Clean(root) != root || root == "/" {
		return nil, fmt.Errorf("cgroup root %q: must be a clean absolute path below /", root)
	}
	kernel, err := openHierarchy(defaultMount, "/")
	return &Tree{driver: Cgroupfs, kernel: kernel}, err
}
