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

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// The group of a volume gets these permissions.
const (
	groupMayFile = 0o660
	groupMayDir  = groupMayFile | 0o110 | fs.ModeSetgid
)

// giveToGroup gives a volume that outlives pods, with all files in it, to the pod's fsGroup; with
// OnRootMismatch only if its root is not the group's already. Events report progress if that takes
// long.
func (c Config) giveToGroup(t target) (err error) {
	sc := t.pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	policy := ptr.Deref(sc.FSGroupChangePolicy, v1.FSGroupChangeAlways)
	if policy == v1.FSGroupChangeOnRootMismatch && isGroups(t.path(), int(*sc.FSGroup)) {
		return nil
	}
	began := time.Now()
	defer func() {
		c.Done(operation.Done{Plugin: t.fullName(), Name: operation.ApplyAccess,
			Took: time.Since(began), Err: err})
	}()
	var given atomic.Int64
	var telling sync.WaitGroup
	defer telling.Wait()
	done := make(chan struct{})
	defer close(done)
	telling.Go(func() { c.tellProgress(t, &given, done) })
	return giveTo(t.path(), int(*sc.FSGroup), &given)
}

// An event reports a change of ownership that is still running after progressDelay, then every
// progressInterval; the kubelet's times.
const progressDelay, progressInterval = 30 * time.Second, time.Minute

// tellProgress sends these events, with the number of files given so far, until done is closed.
func (c Config) tellProgress(t target, given *atomic.Int64, done <-chan struct{}) {
	what := strings.TrimPrefix(t.path(), filepath.Dir(t.podDir)+"/")
	message := fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, "+
		"consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/"+
		"security-context/#configure-volume-permission-and-ownership-change-policy-for-pods", what)
	for wait := progressDelay; ; wait = progressInterval {
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
		if wait == progressInterval {
			message = fmt.Sprintf("Setting volume ownership for %s, processed %d files.", what,
				given.Load())
		}
		c.Tell(t.pod, v1.EventTypeWarning, "VolumePermissionChangeInProgress", message)
	}
}

// giveTo gives dir and all that is in it to a group, and counts the files. It follows no link.
func giveTo(dir string, group int, given *atomic.Int64) (err error) {
	defer wrap(&err, "give the volume to group %d of fsGroup", group)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// The root comes last: if this is interrupted, OnRootMismatch begins it again.
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
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
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

// isGroups reports whether a directory has the group and the permissions that give gives it.
func isGroups(dir string, group int) bool {
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&groupMayDir != groupMayDir {
		return false
	}
	gid, err := groupAt(dir)
	return err == nil && gid == int64(group)
}

// groupAt returns the group of the file at path.
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
