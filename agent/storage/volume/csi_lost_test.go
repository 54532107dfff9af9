package volume

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/internal/await"
)

const diskName1 = "kubernetes.io/csi/disk.example.com^vol-1"

// lose removes files below the root directory.
func (n *diskNode) lose(paths ...string) {
	n.t.Helper()
	for _, path := range paths {
		if err := os.Remove(filepath.Join(n.node.root, path)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// While nothing says which volume a pod has, since its records are lost and the API server does not
// answer, nothing is undone: neither is the staged volume unstaged that may be the pod's, nor does the
// pod end. Then all goes on.
func TestNothingIsUndoneBeforeItIsKnown(t *testing.T) {
	n := newDisk(t, stages)
	pod := diskPod("u")
	setUp(t, n.Volumes, pod)
	n.driver.Forget()
	n.lose(publishDir+"/vol_data.json", "pods/u/numalet_claims")
	n.blind, n.pvcs.away = true, true
	n.start()
	if err := n.Update(t.Context(), pod); err != nil || n.Due(pod, time.Now()).IsZero() {
		t.Errorf("the update: %v; it is not repeated: %t", err, n.Due(pod, time.Now()).IsZero())
	}
	if err := n.TearDown(t.Context(), "u"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("the pod ends: %v", err)
	}
	if mounted, err := n.node.isMounted(filepath.Join(n.node.root, publishDir, "mount")); err != nil || !mounted {
		t.Errorf("it is mounted: %t, %v", mounted, err)
	}
	if !n.mounts.MayHave(diskName1) || len(n.mounts.InUse()) != 1 {
		t.Errorf("in use %q", n.mounts.InUse())
	}
	if said := n.mounts.Amiss("u"); len(said) != 1 || !strings.Contains(said[0], publishDir+"/vol_data.json is lost") {
		t.Errorf("explained: %q", said)
	}
	n.did("nothing is known")
	n.pvcs.away = false
	tearDown(t, n, "u")
	n.unstaged()
	n.did("the API server is back", csitest.Unpublish, csitest.Unstage)
	if said := n.mounts.Amiss("u"); len(said)+len(n.lost) > 0 {
		t.Errorf("explained: %q, told: %q", said, n.lost)
	}
}

// A refusal of the API server is not believed at first: a node authorizer refuses until it knows of the
// pod.
func TestRefusalIsNotBelievedAtOnce(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	n.driver.Forget()
	n.lose(publishDir+"/vol_data.json", "pods/u/numalet_claims")
	n.blind, n.pvcs.refuses = true, "pv"
	n.start()
	for range 2 {
		if err := n.TearDown(t.Context(), "u"); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("the pod ends: %v", err)
		}
	}
	n.did("the API server refuses")
	n.pvcs.refuses = ""
	tearDown(t, n, "u")
	n.unstaged()
	n.did("the API server tells", csitest.Unpublish, csitest.Unstage)
	if len(n.lost) > 0 {
		t.Errorf("told: %q", n.lost)
	}
}

// A staged volume whose record is lost, and that no pod has, is known from the node's status: until
// then it counts as in use.
func TestStagedVolumeKnownFromTheNodesStatus(t *testing.T) {
	n := newDisk(t, stages)
	n.stageAlone()
	if used := n.mounts.InUse(); len(used) > 0 || !n.mounts.MayHave(diskName1) ||
		n.mounts.MayHave("kubernetes.io/csi/disk.example.com^vol-2") || n.mounts.MayHave("kubernetes.io/iscsi/x") {
		t.Errorf("in use %q", used)
	}
	n.mounts.Recognize([]string{"kubernetes.io/iscsi/x", diskName1, "kubernetes.io/csi/disk.example.com^vol-2"})
	n.unstaged()
	n.eventually("the call", func() bool { return len(n.driver.Calls()) > 0 })
	n.did("it is known", csitest.Unstage)
	if len(n.lost) > 0 || len(n.tree(filepath.Dir(diskDir))) > 0 {
		t.Errorf("told %q, left %q", n.lost, n.tree(filepath.Dir(diskDir)))
	}
}

// stageAlone has the next run of the agent find a staged volume without a record and without pods.
func (n *diskNode) stageAlone() {
	n.t.Helper()
	n.pauses = await.Pauses{First: time.Hour, Last: time.Hour}
	n.start()
	setUp(n.t, n.Volumes, diskPod("u"))
	n.driver.Fault(csitest.Unstage, csitest.Fault{Err: refusal()})
	tearDown(n.t, n, "u")
	n.eventually("the call", func() bool { return len(n.driver.Calls(csitest.Unstage)) > 0 })
	n.stop()
	n.driver.Fault(csitest.Unstage, csitest.Fault{})
	n.driver.Forget()
	n.lose(diskDir + "/vol_data.json")
	n.start()
}

// A staged volume that nobody knows any more stays; what to do is told once, and explained as long as it
// lasts. Who follows that ends it.
func TestStagedVolumeLostForGood(t *testing.T) {
	n := newDisk(t, stages)
	n.stageAlone()
	for range 2 {
		n.mounts.Recognize([]string{"kubernetes.io/csi/disk.example.com^vol-2"})
	}
	file := filepath.Join(n.node.root, diskDir, "vol_data.json")
	if len(n.lost) != 1 || !strings.Contains(n.lost[0], file) || !strings.Contains(n.lost[0], filepath.Base(diskDir)) ||
		!slices.Equal(n.mounts.Amiss(""), n.lost) {
		t.Errorf("told %q, explained %q", n.lost, n.mounts.Amiss(""))
	}
	if mounted, err := n.node.isMounted(filepath.Join(n.node.root, diskDir, "globalmount")); !mounted || err != nil {
		t.Errorf("mounted %t, %v", mounted, err)
	}
	n.did("nobody knows it")
	_, advice, _ := strings.Cut(n.lost[0], "write ")
	text, _, _ := strings.Cut(advice, " into ")
	write(t, file, strings.Replace(text, "HANDLE", "vol-1", 1))
	n.start()
	n.unstaged()
	n.did("the advice was followed", csitest.Unstage)
}

// A pod that is gone had the only staged volume that no other pod has, if nobody knows better.
func TestPublishedVolumeIsGuessed(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	n.loseAll()
	n.driver.Forget()
	tearDown(t, n, "u")
	n.unstaged()
	n.did("the end", csitest.Unpublish, csitest.Unstage)
}

// loseAll has the next run of the agent find nothing that names the volume of pod u but where it is
// staged.
func (n *diskNode) loseAll() {
	n.t.Helper()
	n.lose(publishDir+"/vol_data.json", "pods/u/numalet_claims")
	delete(n.pvcs.volumes, "pv")
	n.blind = true
	n.start()
}

// A pod ends although nobody knows what it had: the agent unmounts that itself, and says that it did.
func TestPublishedVolumeLostForGood(t *testing.T) {
	n := newDisk(t)
	setUp(t, n.Volumes, diskPod("u"))
	n.loseAll()
	tearDown(t, n, "u")
	if len(n.lost) != 1 || !strings.Contains(n.lost[0], "volume pv of pod u was unmounted") {
		t.Errorf("told %q", n.lost)
	}
	if left := n.tree("pods"); len(left)+len(n.mounter.MountPoints) > 0 {
		t.Errorf("left %q, %v", left, n.mounter.MountPoints)
	}
}

// Where a kubelet before 1.24 has staged a volume, it is known by its persistent volume's name.
func TestVolumeStagedByAFormerKubelet(t *testing.T) {
	n := newDisk(t, stages)
	former := filepath.Join(n.node.root, "plugins/kubernetes.io/csi/pv/pv")
	if err := os.MkdirAll(filepath.Join(former, "globalmount"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", `{"driverName":"disk.example.com","volumeHandle":"vol-1"}`} {
		write(t, filepath.Join(former, "vol_data.json"), text)
		n.start()
		n.Recall(diskPod("u"))
		setUp(t, n.Volumes, diskPod("u"))
		if used := n.mounts.InUse(); !slices.Equal(used, []string{diskName1}) {
			t.Errorf("with record %q, in use %q", text, used)
		}
		tearDown(t, n, "u")
		n.unstaged()
		if _, err := os.Lstat(former); !os.IsNotExist(err) {
			t.Errorf("with record %q it is left: %v", text, err)
		}
		if err := os.MkdirAll(filepath.Join(former, "globalmount"), 0o750); err != nil {
			t.Fatal(err)
		}
	}
}

// Without its record a disk is known from the PVC of its pod, with the initiator that only the record
// has otherwise: what is undone is the same.
func TestLostRecordOfNetworkDisk(t *testing.T) {
	undone := func(damage func(path string) error) []string {
		n := newSAN(t, lun(func(s *v1.ISCSIPersistentVolumeSource) { s.InitiatorName = ptr.To("iqn.2026-01.test:node") }))
		const iface = "10.0.0.1:3260:pv"
		write(t, filepath.Join(n.dir, "sys/class/iscsi_host/host9/device/session1/iscsi_session/session1/ifacename"), iface)
		setUp(t, n.Volumes, podWith(pvcVolume("data")))
		path := filepath.Join(n.node.root, "plugins/kubernetes.io/iscsi/iface-"+iface, diskName, "iscsi.json")
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		n.start()
		n.ran = nil
		n.tearDown("u")
		return n.ran
	}
	whole := undone(func(string) error { return nil })
	if !slices.ContainsFunc(whole, func(line string) bool { return strings.Contains(line, "-m iface") }) {
		t.Fatalf("its interface is left: %q", whole)
	}
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"another disk's": func(path string) error {
			return os.WriteFile(path, []byte(`{"Iqn":"`+testIQN+`","Iface":"default","Lun":"9"}`), 0o600)
		},
		"a directory": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		if diff := cmp.Diff(whole, undone(damage)); diff != "" {
			t.Errorf("%s: (-undamaged +damaged)\n%s", name, diff)
		}
	}
}
