package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// What a group may do to a volume that is given to it.
const (
	groupMayFile = 0o660
	groupMayDir  = groupMayFile | 0o110 | fs.ModeSetgid
)

// giveTo gives a volume that outlives pods to the pod's fsGroup, with all that is in it, or only if
// its root is not the group's already (OnRootMismatch). It follows no link.
func giveTo(dir string, sc *v1.PodSecurityContext) (err error) {
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	group := int(*sc.FSGroup)
	defer wrap(&err, "give the volume to group %d of fsGroup", group)
	policy := ptr.Deref(sc.FSGroupChangePolicy, v1.FSGroupChangeAlways)
	if policy == v1.FSGroupChangeOnRootMismatch && isGroups(dir, group) {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// The root comes last, so that one that was cut off is begun again.
	if err := giveBelow(root, group); err != nil {
		return err
	}
	return give(root, ".", group)
}

func giveBelow(root *os.Root, group int) error {
	return fs.WalkDir(root.FS(), ".", func(at string, _ fs.DirEntry, err error) error {
		if err != nil || at == "." {
			return err
		}
		err = give(root, at, group)
		if errors.Is(err, fs.ErrNotExist) { // it went meanwhile
			return nil
		}
		return err
	})
}

func give(root *os.Root, at string, group int) error {
	if err := root.Lchown(at, -1, group); err != nil {
		return err
	}
	info, err := root.Lstat(at)
	if err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	mode := info.Mode() | groupMayFile
	if info.IsDir() {
		mode |= groupMayDir
	}
	return root.Chmod(at, mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

// isGroups reports whether a directory is the group's as far as it would be made so.
func isGroups(dir string, group int) bool {
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&groupMayDir != groupMayDir {
		return false
	}
	gid, err := groupAt(dir)
	return err == nil && gid == int64(group)
}

// groupAt is the group of what is at path.
func groupAt(path string) (int64, error) {
	info, err := os.Stat(filepath.Clean(path))
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("the group of %s is not known", path)
	}
	return int64(stat.Gid), nil
}
