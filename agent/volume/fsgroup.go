package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// What a group may do to a volume that is given to it.
const (
	groupMayFile = 0o660
	groupMayDir  = groupMayFile | 0o110 | fs.ModeSetgid
)

// giveToGroup gives a volume that outlives pods to the pod's fsGroup, with all that is in it, or
// only if its root is not the group's already (OnRootMismatch). It tells of it if that takes long.
func (v *Volumes) giveToGroup(t target) error {
	sc := t.pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	policy := ptr.Deref(sc.FSGroupChangePolicy, v1.FSGroupChangeAlways)
	if policy == v1.FSGroupChangeOnRootMismatch && isGroups(t.path(), int(*sc.FSGroup)) {
		return nil
	}
	var given atomic.Int64
	var telling sync.WaitGroup
	defer telling.Wait()
	done := make(chan struct{})
	defer close(done)
	telling.Go(func() { v.tellGiving(t, &given, done) })
	return giveTo(t.path(), int(*sc.FSGroup), &given)
}

// When a volume that is being given away is told of for the first time, and how often then, by the
// kubelet too.
const givingTold, givingToldAgain = 30 * time.Second, time.Minute

// tellGiving tells of a volume of which so many files have been given away, until it is done.
func (v *Volumes) tellGiving(t target, given *atomic.Int64, done <-chan struct{}) {
	what := strings.TrimPrefix(t.path(), filepath.Dir(t.podDir)+"/")
	message := fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, "+
		"consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/"+
		"security-context/#configure-volume-permission-and-ownership-change-policy-for-pods", what)
	for wait := givingTold; ; wait = givingToldAgain {
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
		if wait == givingToldAgain {
			message = fmt.Sprintf("Setting volume ownership for %s, processed %d files.", what,
				given.Load())
		}
		v.cfg.Tell(t.pod, v1.EventTypeWarning, "VolumePermissionChangeInProgress", message)
	}
}

// giveTo gives dir and all that is in it to a group, and counts it. It follows no link.
func giveTo(dir string, group int, given *atomic.Int64) (err error) {
	defer wrap(&err, "give the volume to group %d of fsGroup", group)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// The root comes last, so that one that was cut off is begun again.
	if err := giveBelow(root, group, given); err != nil {
		return err
	}
	return give(root, ".", group)
}

func giveBelow(root *os.Root, group int, given *atomic.Int64) error {
	return fs.WalkDir(root.FS(), ".", func(at string, _ fs.DirEntry, err error) error {
		if err != nil || at == "." {
			return err
		}
		given.Add(1)
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
