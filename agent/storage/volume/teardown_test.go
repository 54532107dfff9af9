package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/mount-utils"
)

func TestTearDown(t *testing.T) {
	v, mounter := newVolumes(t, Config{})
	shared := filepath.Join(t.TempDir(), "shared")
	write(t, shared+"/precious", "x")
	pod := podWith(empty("disk", ""), empty("mem", "Memory"), host("host", shared, "Directory"))
	dir := setUp(t, v, pod)
	scratch := emptyDirPath(dir, "disk")
	// Containers leave deep trees, links out, pipes, unreadable things, more than one batch.
	write(t, scratch+"/a/b/c/file", "x")
	symlink(t, shared, scratch+"/link")
	symlink(t, shared+"/precious", scratch+"/a/link")
	if err := unix.Mkfifo(scratch+"/pipe", 0); err != nil {
		t.Fatal(err)
	}
	for i := range 1100 {
		write(t, fmt.Sprintf("%s/many/%d", scratch, i), "")
	}
	neighbour := podWith()
	neighbour.UID = "u2" // its name starts with the other's
	mounter.MountPoints = append(mounter.MountPoints,
		mount.MountPoint{Path: filepath.Join(setUp(t, v, neighbour), "volumes/x")})

	for range 2 { // the second time there is nothing to do
		if err := v.TearDown(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the pod's directory is still there: %v", err)
		}
		if got := read(t, shared+"/precious"); got != "x" {
			t.Errorf("the host's file holds %q", got)
		}
		if len(mounter.MountPoints) != 1 {
			t.Errorf("mounted: %v; want the neighbour's only", mounter.MountPoints)
		}
	}
	if _, err := os.Stat(filepath.Join(v.node.root, "pods/u2")); err != nil {
		t.Errorf("the neighbour is gone: %v", err)
	}
}

func TestClearKeepsTerminationMessages(t *testing.T) {
	v, mounter := newVolumes(t, Config{})
	pod := podWith(empty("disk", ""), empty("mem", "Memory"))
	dir := setUp(t, v, pod)
	write(t, emptyDirPath(dir, "disk")+"/file", "x")
	message := dir + "/containers/main/00000000"
	write(t, message, "bye")
	for range 2 { // the second time there is nothing to do
		if err := v.Clear(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		if got := read(t, message); got != "bye" {
			t.Errorf("the termination message is %q", got)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Errorf("the pod's directory has %v (%v), want the messages only", left, err)
		}
		if len(mounter.MountPoints) != 0 {
			t.Errorf("mounted: %v", mounter.MountPoints)
		}
	}
	if err := v.Clear(t.Context(), "never-was-here"); err != nil {
		t.Errorf("clear a pod without a directory: %v", err)
	}
}

func TestTearDownKeepsWhatCannotBeUnmounted(t *testing.T) {
	v, mounter := newVolumes(t, Config{})
	pod := podWith(empty("a", "Memory"), empty("b", "Memory"), empty("c", ""))
	dir := setUp(t, v, pod)
	write(t, emptyDirPath(dir, "b")+"/file", "x")
	write(t, emptyDirPath(dir, "c")+"/file", "x")
	busy := errors.New("busy")
	mounter.UnmountFunc = func(path string) error {
		if filepath.Base(path) == "b" {
			return busy
		}
		return nil
	}
	err := v.TearDown(t.Context(), "u")
	if !errors.Is(err, busy) || !strings.Contains(err.Error(), emptyDirPath(dir, "b")) {
		t.Errorf("got %v, want the path that is busy", err)
	}
	for _, name := range []string{"b", "c"} {
		if got := read(t, emptyDirPath(dir, name)+"/file"); got != "x" {
			t.Errorf("%s holds %q", name, got)
		}
	}
	mounter.UnmountFunc = nil
	if err := v.TearDown(t.Context(), "u"); err != nil {
		t.Errorf("second try: %v", err)
	}
}

// The kernel finds a mount that the list does not show before its content is deleted.
func TestTearDownNeverEntersAMount(t *testing.T) {
	requireRoot(t)
	for _, kind := range []string{"directory", "file"} {
		t.Run(kind, func(t *testing.T) {
			v, _ := newVolumes(t, Config{})
			scratch := emptyDirPath(setUp(t, v, podWith(empty("v", ""))), "v")
			source, target := filepath.Join(t.TempDir(), "shared"), scratch+"/mounted"
			precious := source
			if kind == "directory" {
				precious = source + "/precious"
				if err := os.Mkdir(target, 0o700); err != nil {
					t.Fatal(err)
				}
			} else {
				write(t, target, "")
			}
			write(t, precious, "x")
			if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
				t.Skip("bind mounts cannot be had: ", err)
			}
			t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })

			err := v.TearDown(t.Context(), "u")
			if err == nil || !strings.Contains(err.Error(), target) {
				t.Errorf("got %v, want an error about %s", err, target)
			}
			if got := read(t, precious); got != "x" {
				t.Errorf("what is mounted holds %q", got)
			}
			if err := unix.Unmount(target, 0); err != nil {
				t.Fatal(err)
			}
			if err := v.TearDown(t.Context(), "u"); err != nil {
				t.Errorf("after unmounting: %v", err)
			}
			if got := read(t, precious); got != "x" {
				t.Errorf("what was mounted holds %q", got)
			}
		})
	}
}

// The pod's own directory may be a link by accident; its target is not ours.
func TestTearDownOfALink(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	other := t.TempDir()
	write(t, other+"/file", "x")
	symlink(t, other, filepath.Join(v.node.root, "pods/u"))
	if err := v.TearDown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, other+"/file"); got != "x" {
		t.Errorf("got %q", got)
	}
}

func TestTearDownRefuses(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	setUp(t, v, podWith(empty("v", "")))
	for _, uid := range []types.UID{"", ".", "..", "../pods", "u/volumes"} {
		if err := v.TearDown(t.Context(), uid); err == nil {
			t.Errorf("UID %q was accepted", uid)
		}
	}
	if got := tree(t, filepath.Join(v.node.root, "pods")); len(got) == 0 {
		t.Error("a pod was removed")
	}
}

func TestTearDownCancelled(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	dir := setUp(t, v, podWith(empty("v", "")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.TearDown(ctx, "u"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// Mounts below a root whose name the kernel escapes are still found.
func TestMountsOfAnOddRoot(t *testing.T) {
	mounter := mount.NewFakeMounter([]mount.MountPoint{{Path: `/a\040b/pods/u/volumes/v`}})
	v := filesystems{mounter: mounter}
	got, err := v.mountsBelow("/a b/pods/u")
	if err != nil || !slices.Equal(got, []string{"/a b/pods/u/volumes/v"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOrphans(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	for _, uid := range []types.UID{"c", "a", "b"} {
		pod := podWith()
		pod.UID = uid
		setUp(t, v, pod)
	}
	write(t, filepath.Join(v.node.root, "pods/stray-file"), "")
	got, err := v.Orphans(sets.New[types.UID]("b", "z"))
	if err != nil || !slices.Equal(got, []types.UID{"a", "c"}) {
		t.Errorf("got %q, %v", got, err)
	}
}
