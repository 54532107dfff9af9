package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// counted has operations as text.
type counted struct {
	mu  sync.Mutex // guards all
	all []string
}

func (c *counted) add(o operation.Done) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := strings.TrimPrefix(o.Plugin+" "+o.Name, "kubernetes.io/")
	if o.Err != nil {
		line += " failed"
	}
	c.all = append(c.all, line)
}

// take returns the operations since the last call, sorted.
func (c *counted) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Sorted(slices.Values(c.all))
	c.all = nil
	return out
}

// Each operation on a volume is counted once, under the kubelet's name: also one that fails, and not
// those that have nothing to do.
func TestOperationsAreCounted(t *testing.T) {
	n := newDisk(t, stages)
	c := &counted{}
	n.cfg.Done, n.count = c.add, c.add
	n.start()
	pod := diskPod("u")
	pod.Spec.Volumes = append(pod.Spec.Volumes, empty("e", ""), host("h", "/", ""))
	for _, name := range []string{"e", "h"} {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
			v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	n.objects.change(func(o *diskObjects) { o.unattached = true })
	if err := n.SetUp(t.Context(), pod); err == nil {
		t.Fatal("nothing is attached")
	}
	const disk = "csi:disk.example.com "
	had := []string{"empty-dir overall_volume_mount", "empty-dir verify_controller_attached_volume",
		"empty-dir volume_mount", "host-path overall_volume_mount",
		"host-path verify_controller_attached_volume", "host-path volume_mount"}
	is := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, c.take()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", when, diff)
		}
	}
	is("before the volume is attached", had...)
	n.objects.change(func(o *diskObjects) { o.unattached = false })
	n.driver.Fault(csitest.Publish, csitest.Fault{Err: status.Error(codes.Internal, "no"), Count: 1})
	if err := n.SetUp(t.Context(), pod); err == nil {
		t.Fatal("the fault did not come")
	}
	is("a failure", disk+"verify_controller_attached_volume", disk+"volume_mount failed")
	n.eventually("another try", func() bool { return n.SetUp(t.Context(), pod) == nil })
	got := c.take()
	got = slices.DeleteFunc(got, func(line string) bool { return strings.HasSuffix(line, "failed") }) // paused
	if diff := cmp.Diff([]string{disk + "overall_volume_mount", disk + "volume_mount"}, got); diff != "" {
		t.Errorf("set up: -want +got:\n%s", diff)
	}
	setUp(t, n.Volumes, pod)
	is("once more")
	n.driver.Fault(csitest.Unpublish, csitest.Fault{Err: status.Error(codes.Internal, "no"), Count: 1})
	if err := n.TearDown(t.Context(), "u"); err == nil {
		t.Fatal("the fault did not come")
	}
	is("the end fails", disk+"volume_unmount failed")
	n.eventually("the end", func() bool { return n.TearDown(t.Context(), "u") == nil })
	n.unstaged()
	got = slices.DeleteFunc(c.take(), func(line string) bool { return strings.HasSuffix(line, "failed") })
	if diff := cmp.Diff([]string{disk + "unmount_device", disk + "volume_unmount", "empty-dir volume_unmount",
		"host-path volume_unmount"}, got); diff != "" {
		t.Errorf("the end: -want +got:\n%s", diff)
	}
}

// A staged local volume is unmounted by its last pod.
func TestOperationsOnSharedVolumes(t *testing.T) {
	c := &counted{}
	v, _ := newVolumes(t, Config{PVCs: bind(localAt(t.TempDir())), Ends: Ends{Done: c.add}})
	for _, uid := range []string{"a", "b"} {
		setUp(t, v, diskPod(uid))
	}
	c.take()
	for _, uid := range []string{"a", "b"} {
		if err := v.TearDown(t.Context(), diskPod(uid).UID); err != nil {
			t.Fatal(err)
		}
		want := []string{"local-volume volume_unmount"}
		if uid == "b" {
			want = append([]string{"local-volume unmount_device"}, want...)
		}
		if diff := cmp.Diff(want, c.take()); diff != "" {
			t.Errorf("pod %s: -want +got:\n%s", uid, diff)
		}
	}
}

// What an earlier run left is counted when the agent begins, and what nobody knows once more when it
// is removed.
func TestRemainsAreCounted(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	for i, path := range []string{"kubernetes.io~csi/lost", "example.com~flex/x"} {
		if err := os.MkdirAll(filepath.Join(n.node.root, fmt.Sprintf("pods/other%d/volumes/%s", i, path)), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	c := &counted{}
	n.cfg.Done = c.add
	n.start()
	want := []string{"csi reconstruct", "csi reconstruct failed", "example.com/flex reconstruct failed"}
	if diff := cmp.Diff(want, c.take()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for range 2 {
		if err := n.TearDown(t.Context(), "other0"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{" force_clean"}, c.take()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
