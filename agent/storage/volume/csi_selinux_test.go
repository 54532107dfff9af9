package volume

import (
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
)

// mountsLabels says whether a driver mounts with contexts.
func mountsLabels(does bool) storagev1.CSIDriverSpec {
	return storagev1.CSIDriverSpec{SELinuxMount: ptr.To(does),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}
}

// newLabeledDisk returns a node with SELinux, whose driver mounts with contexts.
func newLabeledDisk(t *testing.T, can ...csipb.NodeServiceCapability_RPC_Type) *diskNode {
	t.Helper()
	n := newDisk(t, can...)
	labels, err := selinux.New(selinux.Host{Enabled: func() bool { return true },
		FileLabel: func(o *v1.SELinuxOptions) (string, error) { return "files:" + o.Level, nil },
	}, func(string) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.cfg.SELinux = labels
	n.objects.has(&storagev1.CSIDriver{Spec: mountsLabels(true)})
	n.start()
	return n
}

// labeledPod returns a pod whose processes have a level.
func labeledPod(uid, level string) *v1.Pod {
	pod := diskPod(uid)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}}
	return pod
}

func (n *diskNode) flags() (stage, publish []string) {
	return request[*csipb.NodeStageVolumeRequest](n, csitest.Stage).GetVolumeCapability().GetMount().GetMountFlags(),
		request[*csipb.NodePublishVolumeRequest](n, csitest.Publish).GetVolumeCapability().GetMount().GetMountFlags()
}

func (n *diskNode) relabels(pod *v1.Pod) bool {
	n.t.Helper()
	mounts, err := n.Containers.Mounts(n.t.Context(), pod, &pod.Spec.Containers[0], Start{})
	if err != nil {
		n.t.Fatal(err)
	}
	return mounts[0].SelinuxRelabel
}

// A driver that can gets the pod's label as a mount option, when it stages and when it publishes. The
// runtime then labels nothing, and the label is where the kubelet keeps it.
func TestLabeledDisk(t *testing.T) {
	n := newLabeledDisk(t, stages)
	n.pvcs.volumes["pv"].Spec.MountOptions = []string{"noatime"}
	pod := labeledPod("u", "s0:c1,c2")
	setUp(t, n.Volumes, pod)
	want := []string{"noatime", `context="files:s0:c1,c2"`}
	if stage, publish := n.flags(); !slices.Equal(stage, want) || !slices.Equal(publish, want) {
		t.Errorf("staged with %q, published with %q", stage, publish)
	}
	if n.relabels(pod) {
		t.Error("the runtime is to label the files")
	}
	for _, dir := range []string{publishDir, diskDir} {
		if got := n.data(dir)["seLinuxMountContext"]; got != "files:s0:c1,c2" {
			t.Errorf("%s has %q", dir, got)
		}
	}
	n.driver.Forget()
	n.start()
	setUp(t, n.Volumes, pod)
	n.did("the next run")
	if n.relabels(pod) {
		t.Error("the next run has the runtime label the files")
	}
}

// A driver that cannot, and a pod that does not want it, get no option; the runtime labels the files.
func TestDiskWithoutLabel(t *testing.T) {
	for name, change := range map[string]func(n *diskNode, pod *v1.Pod){
		"no object": func(n *diskNode, _ *v1.Pod) { n.objects.has(nil) },
		"cannot": func(n *diskNode, _ *v1.Pod) {
			n.objects.has(&storagev1.CSIDriver{Spec: mountsLabels(false)})
		},
		"recursive": func(_ *diskNode, pod *v1.Pod) {
			pod.Spec.SecurityContext.SELinuxChangePolicy = ptr.To(v1.SELinuxChangePolicyRecursive)
		},
		"no SELinux": func(n *diskNode, _ *v1.Pod) {
			n.cfg.SELinux = nil
			n.start()
		},
	} {
		n, pod := newLabeledDisk(t, stages), labeledPod("u", "s0:c1,c2")
		change(n, pod)
		setUp(t, n.Volumes, pod)
		if stage, publish := n.flags(); len(stage)+len(publish) > 0 || !n.relabels(pod) {
			t.Errorf("%s: staged with %q, published with %q", name, stage, publish)
		}
		if got, has := n.data(publishDir)["seLinuxMountContext"]; has {
			t.Errorf("%s: the record has %q", name, got)
		}
	}
}

// A second pod with another label waits, in the kubelet's words, until the first has gone; the volume is
// then staged anew. One with the same label has it at once.
func TestDiskWithTwoLabels(t *testing.T) {
	n := newLabeledDisk(t, stages)
	n.pvcs.volumes["pv"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	first, same, other := labeledPod("u", "a"), labeledPod("v", "a"), labeledPod("w", "b")
	setUp(t, n.Volumes, first)
	setUp(t, n.Volumes, same)
	n.did("two with one label", csitest.Stage, csitest.Publish, csitest.Publish)
	err := n.SetUp(t.Context(), other)
	const want = `failed to process volumes=[v]: conflicting SELinux labels of volume pv: "files:a" and "files:b"`
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	n.start()
	if err := n.SetUp(t.Context(), other); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("in the next run: %v", err)
	}
	setUp(t, n.Volumes, first)
	n.did("while the first has it")
	for _, pod := range []*v1.Pod{first, same} {
		if err := n.TearDown(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	setUp(t, n.Volumes, other)
	n.did("with the other label", csitest.Unpublish, csitest.Unpublish, csitest.Unstage, csitest.Stage, csitest.Publish)
	if got := n.data(diskDir)["seLinuxMountContext"]; got != "files:b" {
		t.Errorf("it is staged with %q", got)
	}
}

// What is staged with another label, and not known to be a pod's, is staged anew.
func TestDiskStagedWithAnotherLabel(t *testing.T) {
	n := newLabeledDisk(t, stages)
	setUp(t, n.Volumes, labeledPod("u", "a"))
	n.driver.Forget()
	n.pvcs.volumes["pv"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	other := labeledPod("w", "b")
	n.Volumes.node.pvcs.forget("u") // as if a kubelet had set the pod up
	err := n.SetUp(t.Context(), other)
	const want = `waiting for unmount of volume "kubernetes.io/csi/disk.example.com^vol-1", because it is ` +
		`already mounted to a different pod with a different SELinux label`
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	n.did("while it is published")
}
