package volume

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/internal/podtest"
)

// Only ordinary volumes are made beside the sandbox, and only the first time.
func TestBeside(t *testing.T) {
	projected := func(s v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}, s}}}
	}
	config := func(name string) *v1.ConfigMapProjection {
		return &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: name}}
	}
	for name, c := range map[string]struct {
		source v1.VolumeSource
		want   bool
	}{
		"the token and the CA":   {projected(v1.VolumeProjection{ConfigMap: config(rootCA)}), true},
		"what the pod says":      {projected(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{}}), true},
		"another ConfigMap":      {projected(v1.VolumeProjection{ConfigMap: config("settings")}), false},
		"a Secret":               {projected(v1.VolumeProjection{Secret: &v1.SecretProjection{}}), false},
		"an empty directory":     {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, true},
		"no source, as empty":    {v1.VolumeSource{}, true},
		"a directory of pages":   {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}, false},
		"what the pod has":       {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}, true},
		"a path of the node":     {v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}, false},
		"a claim":                {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, false},
		"an image":               {v1.VolumeSource{Image: &v1.ImageVolumeSource{}}, false},
		"a volume of a type":     {v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}, false},
		"an ephemeral claim":     {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, false},
		"a share of the network": {v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}, false},
	} {
		pod := podWith(v1.Volume{Name: "v", VolumeSource: c.source})
		v, err := New(alone(Config{Root: t.TempDir()}))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Beside(pod); got != c.want {
			t.Errorf("%s beside the sandbox: %t", name, got)
		}
		if v.due.begin(pod); v.Beside(pod) {
			t.Errorf("%s is made beside the sandbox once more", name)
		}
	}
}

// A volume that another pod has is made beside the sandbox; what is missing of it is made later.
func TestDiskBesideSandbox(t *testing.T) {
	n := newDisk(t, stages)
	expect := func(when string, want bool) {
		t.Helper()
		if got := n.Beside(diskPod("w")); got != want {
			t.Errorf("%s it is made beside the sandbox: %t", when, got)
		}
	}
	incomplete := func(when string, want bool) {
		t.Helper()
		if got, err := n.Incomplete(diskPod("w")); err != nil || got != want {
			t.Errorf("%s it is incomplete: %t, %v", when, got, err)
		}
	}
	expect("staged for nobody,", false)
	setUp(t, n.Volumes, diskPod("u"))
	expect("beside another pod,", true)
	other := diskPod("w")
	if other.Namespace = "elsewhere"; n.Beside(other) {
		t.Error("a claim of another namespace counts")
	}
	n.leave()
	expect("without the driver,", false)
	n.register()
	known := n.Volumes.node.pvcs.of("u")["v"]
	for what, change := range map[string]func(*v1.PersistentVolume){
		"with a group,": func(v *v1.PersistentVolume) { v.Annotations = map[string]string{gidAnnotation: "7"} },
		"for one pod,": func(v *v1.PersistentVolume) {
			v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		},
	} {
		changed := known
		changed.Volume = known.Volume.DeepCopy()
		change(changed.Volume)
		n.Volumes.node.pvcs.pods["u"]["v"] = changed
		expect(what, false)
	}
	n.Volumes.node.pvcs.pods["u"]["v"] = known

	incomplete("before it is made,", true)
	setUp(t, n.Volumes, diskPod("w"))
	incomplete("made,", false)
	if err := n.mounter.Unmount(n.mounts.Target(csi.Volume{Path: "pv"}, "w")); err != nil {
		t.Fatal(err)
	}
	incomplete("unmounted,", true)
	tearDown(t, n, "w")
	tearDown(t, n, "u")
	expect("after the other pod,", false)
}

// A driver that hangs delays no other volume of its pod, and a PVC that the pod has twice is made
// once.
func TestVolumesEachByItself(t *testing.T) {
	n := newDisk(t, stages)
	n.driver.Fault(csitest.Stage, csitest.Fault{Hang: true})
	pod := diskPod("u")
	twice := pvcVolume("data")
	twice.Name = "again"
	share := v1.Volume{Name: "share", VolumeSource: v1.VolumeSource{
		NFS: &v1.NFSVolumeSource{Server: "files", Path: "/share"}}}
	podtest.Mounts(twice, share)(pod)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.SetUp(ctx, pod) }()
	n.eventually("the share to be mounted", func() bool {
		return slices.ContainsFunc(n.mounter.GetLog(), func(a mount.FakeAction) bool {
			return a.Action == mount.FakeActionMount && a.Source == "files:/share"
		})
	})
	if calls := n.driver.Calls(csitest.Stage); len(calls) > 1 {
		t.Errorf("it was staged by %d calls", len(calls))
	}
	n.driver.Fault(csitest.Stage, csitest.Fault{})
	n.driver.Kill() // the call ends
	if err := <-ended; err == nil {
		t.Error("the call that ended made the volume")
	}
	cancel()
	n.driver.Revive(t)
	n.eventually("the volumes to be made", func() bool { return n.SetUp(t.Context(), pod) == nil })
	if published := n.driver.Published(); len(published) != 1 {
		t.Errorf("published %q", published)
	}
	tearDown(t, n, "u")
}
