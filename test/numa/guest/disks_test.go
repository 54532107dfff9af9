package guest_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/test/harness"
)

const (
	disksRoot = "/run/disks/root"
	openIQN   = "iqn.2026-01.test:open"
	chapIQN   = "iqn.2026-01.test:chap"
	luns      = 3
)

// storage has claims that are bound to disks of the targets, by name, and to an export.
type storage map[string]v1.PersistentVolumeSpec

func (s storage) PVC(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name)},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: name},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}, nil
}

func (s storage) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	spec, has := s[name]
	if !has {
		return nil, fmt.Errorf("there is no volume %s", name)
	}
	spec.ClaimRef = &v1.ObjectReference{UID: types.UID(name)}
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, nil
}

func (s storage) UpdatePVC(context.Context, *v1.PersistentVolumeClaim, *v1.PersistentVolumeClaim) (
	*v1.PersistentVolumeClaim, error) {
	return nil, errors.New("nothing grows here")
}

func lun(iqn string, n int32, more ...string) *v1.ISCSIPersistentVolumeSource {
	return &v1.ISCSIPersistentVolumeSource{TargetPortal: "127.0.0.1", IQN: iqn, Lun: n, ISCSIInterface: "default",
		FSType: "ext4", Portals: more}
}

func volumesOfDisks() storage {
	block := ptr.To(v1.PersistentVolumeBlock)
	chap := lun(chapIQN, 0)
	chap.SessionCHAPAuth, chap.SecretRef = true, &v1.SecretReference{Name: "chap"}
	labeled := lun(chapIQN, 1)
	labeled.SessionCHAPAuth, labeled.SecretRef = true, chap.SecretRef
	own := lun(openIQN, 2)
	own.InitiatorName = ptr.To("iqn.2026-01.test:own")
	of := func(s *v1.ISCSIPersistentVolumeSource) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{ISCSI: s}
	}
	return storage{
		"files":  {PersistentVolumeSource: of(lun(openIQN, 0)), MountOptions: []string{"noatime"}},
		"device": {PersistentVolumeSource: of(lun(openIQN, 1)), VolumeMode: block},
		"own":    {PersistentVolumeSource: of(own)},
		"paths":  {PersistentVolumeSource: of(lun(openIQN, 0, "127.0.0.2"))},
		"chap":   {PersistentVolumeSource: of(chap)},
		"labeled": {PersistentVolumeSource: of(labeled),
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}},
		"none": {PersistentVolumeSource: of(lun(openIQN, 9))},
		"export": {PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/"}},
			MountOptions: []string{"vers=4.2", "noatime", "soft", "timeo=30"}},
		"away": {PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}},
			MountOptions: []string{"vers=4.2", "retry=0"}},
	}
}

// diskAgent is what an agent has of volumes.
type diskAgent struct {
	*volume.Volumes
	t    *testing.T
	stop func()
}

func newDiskAgent(t *testing.T) diskAgent { return newLabelingAgent(t, nil) }

func newLabelingAgent(t *testing.T, labels *selinux.Labels) diskAgent {
	t.Helper()
	secret := func(context.Context, string, string) (*v1.Secret, error) {
		return &v1.Secret{Data: map[string][]byte{"node.session.auth.username": []byte("user"),
			"node.session.auth.password": []byte("password-of-12")}}, nil
	}
	v, err := volume.New(volume.Config{Root: disksRoot, PVCs: volumesOfDisks(),
		Makers: volume.Makers{SELinux: labels, Disks: volume.DisksConfig{Secret: secret}},
		Facts:  func() cri.Facts { return cri.Facts{} },
		Labels: func() map[string]string { return nil },
		Ends: volume.Ends{Done: func(operation.Done) {},
			Tell: func(runtime.Object, string, string, string) {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = v.Disks().Run(ctx) }()
	return diskAgent{v, t, func() { cancel(); <-ended }}
}

// podOf returns a pod that has the volumes of these claims.
func podOf(uid string, claims ...string) *v1.Pod {
	pod := podtest.New("shop/"+uid, podtest.Containers("c"))
	c := &pod.Spec.Containers[0]
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		if claim == "device" {
			c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: claim, DevicePath: "/dev/x"})
		} else {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: claim, MountPath: "/" + claim})
		}
	}
	return pod
}

func (a diskAgent) setUp(pod *v1.Pod) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := a.SetUp(ctx, pod); err != nil {
		a.t.Fatal(err)
	}
}

// end removes the pods and waits until nothing of a disk is left on the node.
func (a diskAgent) end(uids ...string) {
	a.t.Helper()
	for _, uid := range uids {
		harness.Eventually(a.t, "the end of pod "+uid, func() error {
			return a.TearDown(context.Background(), types.UID(uid))
		})
	}
	harness.Eventually(a.t, "nothing to be left of the disks", func() error {
		if used := a.Disks().InUse(); len(used) > 0 {
			return fmt.Errorf("in use %q", used)
		}
		sessions, _ := filepath.Glob("/sys/class/iscsi_session/*")
		disks, _ := filepath.Glob("/sys/block/sd*")
		dirs, _ := filepath.Glob(disksRoot + "/plugins/kubernetes.io/iscsi/iface-*")
		pods, _ := filepath.Glob(disksRoot + "/pods/*")
		mounts, err := mountsBelow(disksRoot)
		if left := slices.Concat(sessions, disks, dirs, pods, mounts); len(left) > 0 || err != nil {
			return fmt.Errorf("left %q, %v", left, err)
		}
		return nil
	})
}

func mountsBelow(dir string) (out []string, err error) {
	text, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[1], dir+"/") {
			out = append(out, fields[0]+" "+fields[1]+" "+fields[3])
		}
	}
	return out, err
}

func path(uid, kind, name string) string {
	return disksRoot + "/pods/" + uid + "/volumes/kubernetes.io~" + kind + "/" + name
}

// TestDisks: pods have file systems and devices of a real target, through its sessions, over restarts
// and kills of the agent; and exports of a real server. In the end nothing is left.
func TestDisks(t *testing.T) {
	os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	if os.Getenv("NUMALET_DISK_AGENT") != "" {
		killed(t)
		return
	}
	startTarget(t)
	t.Run("iSCSI", testISCSI)
	t.Run("kills", testDiskKills)
	t.Run("NFS", testNFS)
	t.Run("SELinux", testSELinux)
}

func testISCSI(t *testing.T) {
	a := newDiskAgent(t)
	a.setUp(podOf("a", "files", "device", "own", "chap"))
	a.setUp(podOf("b", "files"))
	write(t, path("a", "iscsi", "files")+"/x", "of a")
	if text, err := os.ReadFile(path("b", "iscsi", "files") + "/x"); err != nil || string(text) != "of a" {
		t.Errorf("b reads %q, %v", text, err)
	}
	write(t, path("a", "iscsi", "chap")+"/x", "secret")
	device := disksRoot + "/pods/a/volumeDevices/kubernetes.io~iscsi/device"
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("raw"); err != nil || f.Close() != nil {
		t.Error(err)
	}
	sessions, _ := filepath.Glob("/sys/class/iscsi_session/*")
	row(t, "a pod with 4 disks of 2 targets: %d sessions", len(sessions))
	if len(sessions) != 3 { // of the open target, of the volume's own initiator, of the other target
		t.Errorf("%d sessions", len(sessions))
	}
	a.stop()
	a = newDiskAgent(t) // files are all it knows
	if err := a.TearDown(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path("b", "iscsi", "files") + "/x"); err != nil || string(text) != "of a" {
		t.Errorf("after the end of a, b reads %q, %v", text, err)
	}
	a.end("b")
	a.setUp(podOf("c", "files", "device", "chap"))
	if text, err := os.ReadFile(path("c", "iscsi", "files") + "/x"); err != nil || string(text) != "of a" {
		t.Errorf("c reads %q, %v", text, err)
	}
	raw := make([]byte, 3)
	f, err = os.Open(disksRoot + "/pods/c/volumeDevices/kubernetes.io~iscsi/device")
	if err == nil {
		_, err = f.Read(raw)
		err = errors.Join(err, f.Close())
	}
	if err != nil || string(raw) != "raw" {
		t.Errorf("the device has %q, %v", raw, err)
	}
	a.end("c")
	a.setUp(podOf("d", "paths"))
	if sessions, _ := filepath.Glob("/sys/class/iscsi_session/*"); len(sessions) != 2 {
		t.Errorf("of two portals: %q", sessions)
	}
	a.end("d")
	err = a.SetUp(t.Context(), podOf("e", "none"))
	if err == nil || !strings.Contains(err.Error(), "timed out waiting for the device of LUN 9") {
		t.Errorf("got %v", err)
	}
	a.end("e")
	a.stop()
}

// testDiskKills has an agent killed again and again while a pod comes and goes. NUMALET_KILLS says how often
// (3).
func testDiskKills(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("NUMALET_KILLS"), "3"))
	if err != nil {
		t.Fatal(err)
	}
	first := newDiskAgent(t)
	first.setUp(podOf("f", "files"))
	write(t, path("f", "iscsi", "files")+"/x", "of a")
	first.end("f")
	first.stop()
	rounds := 0
	for i := range kills {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestDisks$")
		cmd.Env = append(os.Environ(), "NUMALET_DISK_AGENT=1")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "begun" {
		}
		time.Sleep(rand.N(4 * time.Second))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		a := newDiskAgent(t)
		a.setUp(podOf("k", "files", "device")) // what is half done is gone on with
		if text, err := os.ReadFile(path("k", "iscsi", "files") + "/x"); err != nil || string(text) != "of a" {
			t.Errorf("kill %d: the pod reads %q, %v", i, text, err)
		}
		a.end("k")
		a.stop()
		rounds++
	}
	row(t, "%d kills while disks come and go: all logged out each time", rounds)
}

// killed is the agent that is killed.
func killed(t *testing.T) {
	fmt.Println("begun")
	for {
		a := newDiskAgent(t)
		a.setUp(podOf("k", "files", "device"))
		a.end("k")
		a.stop()
	}
}

func testNFS(t *testing.T) {
	startNFS(t)
	a := newDiskAgent(t)
	defer a.stop()
	a.setUp(podOf("n", "export"))
	write(t, path("n", "nfs", "export")+"/x", "shared")
	if text, err := os.ReadFile("/run/disks/export/x"); err != nil || string(text) != "shared" {
		t.Errorf("the server has %q, %v", text, err)
	}
	mounts, err := mountsBelow(disksRoot)
	if err != nil || len(mounts) != 1 || !strings.Contains(mounts[0], "vers=4.2") ||
		!strings.Contains(mounts[0], "noatime") || !strings.Contains(mounts[0], "soft") {
		t.Errorf("mounted %q, %v", mounts, err)
	}
	own := podOf("r")
	own.Spec.Volumes = []v1.Volume{{Name: "own", VolumeSource: v1.VolumeSource{
		NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/", ReadOnly: true}}}}
	own.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "own", MountPath: "/own"}}
	a.setUp(own)
	if err := os.WriteFile(path("r", "nfs", "own")+"/y", nil, 0o644); err == nil {
		t.Error("a read-only export was written")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = a.SetUp(ctx, podOf("w", "away"))
	if err == nil || !strings.Contains(err.Error(), `MountVolume.SetUp failed for volume "away"`) {
		t.Errorf("of a server that is away: %v", err)
	}
	for _, uid := range []types.UID{"r", "w"} {
		if err := a.TearDown(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
	// A server that does not answer keeps only its own pods.
	must(t, "rpc.nfsd", "0")
	a.setUp(podOf("other", "files"))
	began := time.Now()
	a.end("n", "other")
	row(t, "a pod with a dead server of NFS ends after %.0f s", time.Since(began).Seconds())
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
