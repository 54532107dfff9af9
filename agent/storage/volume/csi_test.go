package volume

import (
	gocmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/podtest"
)

// Short names of what drivers can do.
const (
	stages = csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	groups = csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	multi  = csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
)

// diskNode is a node with a CSI driver and a persistent volume, pv, of it.
type diskNode struct {
	*Volumes
	t       *testing.T
	mounts  *csi.Mounts
	drivers *csi.Drivers
	driver  *csitest.Driver
	leave   func() // ends the driver's registration
	stop    func() // ends the run of the agent
	mounter *mount.FakeMounter
	pvcs    *storage
	objects *diskObjects
	cfg     Config
	csi     csi.MountsConfig
	count   func(operation.Done) // of drivers' volumes; nil: nobody counts
	lost    []string             // what was told of records that are lost for good
	woken   []types.UID          // pods that were to be looked at
	blind   bool                 // the kernel's list of mounts cannot be read
	// patience with attachments; 0: the kubelet's.
	patience time.Duration
	pauses   await.Pauses // between calls that fail; zero: milliseconds
	late     bool         // what nobody uses is taken back when run is called, not at the start
	run      func()
}

// diskObjects are the API server's objects about the driver, and its attachments.
type diskObjects struct {
	mu         sync.Mutex // guards the fields below
	object     *storagev1.CSIDriver
	secrets    map[string]string // values of the key k, by namespace/name
	unattached bool
	failed     error // of the attacher
	used       bool  // the last question about an attachment was for a pod that uses it
	away       error // of a request for the driver's object
}

func (o *diskObjects) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.object, o.away
}

func (o *diskObjects) DriverSecret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	value, has := o.secrets[namespace+"/"+name]
	if !has {
		return nil, errors.New("no such secret")
	}
	return &v1.Secret{Data: map[string][]byte{"k": []byte(value)}}, nil
}

func (o *diskObjects) DriverToken(_ context.Context, pod *v1.Pod, want storagev1.TokenRequest) (
	authenticationv1.TokenRequestStatus, error) {
	return authenticationv1.TokenRequestStatus{Token: string(pod.UID) + "@" + want.Audience,
		ExpirationTimestamp: metav1.Unix(0, 0)}, nil
}

// attached answers for a volume that no pod uses yet as for one that pods use.
func (o *diskObjects) attached(_ context.Context, of csi.Attachment) (
	map[string]string, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used = of.InUse
	if o.unattached {
		return nil, false, o.failed
	}
	return map[string]string{"device": of.Driver + " " + of.Handle}, true, nil
}

// change changes what the API server has.
func (o *diskObjects) change(do func(o *diskObjects)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do(o)
}

// has gives the API server an object of the driver.
func (o *diskObjects) has(object *storagev1.CSIDriver) {
	o.change(func(o *diskObjects) { o.object = object })
}

// newDisk returns a node with a driver that can do these things.
func newDisk(t *testing.T, can ...csipb.NodeServiceCapability_RPC_Type) *diskNode {
	t.Helper()
	n := &diskNode{t: t, mounter: mount.NewFakeMounter(nil), objects: &diskObjects{},
		pvcs: bind(v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
			Driver: csitest.Name, VolumeHandle: "vol-1", FSType: "ext4",
			VolumeAttributes: map[string]string{"tier": "fast"},
		}})}
	n.pvcs.volumes["pv"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	n.driver = csitest.Start(t, csitest.Config{Can: can, Mounter: n.mounter})
	drivers, err := csi.New(csi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n.drivers = drivers
	n.register()
	n.cfg = alone(Config{Root: filepath.Join(t.TempDir(), "root"), Mounter: n.mounter,
		PVCs: n.pvcs})
	n.start()
	return n
}

// register registers the driver, as the watcher of the plugin registry does.
func (n *diskNode) register() {
	n.t.Helper()
	member, err := n.drivers.Handler()(n.t.Context(), watcher.Plugin{
		Name: csitest.Name, Endpoint: n.driver.Endpoint, Versions: []string{"1.0.0"},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.leave = member.Leave
}

// start begins a run of the agent, with nothing but files of what was before.
func (n *diskNode) start() {
	n.t.Helper()
	if n.stop != nil {
		n.stop()
	}
	_, ctx := ktesting.NewTestContext(n.t)
	ctx, cancel := context.WithCancel(ctx)
	n.csi = csi.MountsConfig{Drivers: n.drivers, Root: n.cfg.Root, Node: "node", Objects: n.objects,
		Attached: n.objects.attached, Done: n.count,
		Patience: n.patience, Wake: func(pod types.UID) { n.woken = append(n.woken, pod) }, Recovery: csi.RecoveryConfig{Origins: n.origins,
			Lost: func(message string) { n.lost = append(n.lost, message) }},
		Pauses: gocmp.Or(n.pauses, await.Pauses{First: time.Millisecond, Last: 8 * time.Millisecond})}
	mounts := csi.NewMounts(ctx, n.csi)
	n.mounts, n.cfg.CSI = mounts, mounts
	var err error
	if n.Volumes, err = New(n.cfg); err != nil {
		n.t.Fatal(err)
	}
	var running sync.WaitGroup
	n.run = func() { running.Go(func() { _ = mounts.Run(ctx) }) }
	if !n.late {
		n.run()
	}
	n.stop = func() {
		cancel()
		running.Wait()
	}
	n.t.Cleanup(n.stop)
}

// origins is the kernel's list of mounts.
func (n *diskNode) origins() (map[string]string, error) {
	if n.blind {
		return nil, errors.New("no list of mounts")
	}
	out := map[string]string{}
	for _, m := range n.mounter.MountPoints {
		out[m.Path] = m.Device
	}
	return out, nil
}

// did compares the calls of the driver so far with these, and forgets them.
func (n *diskNode) did(what string, want ...string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.driver.Did()); diff != "" {
		n.t.Errorf("%s: calls: -want +got:\n%s", what, diff)
	}
	n.driver.Forget()
	if wrong := n.driver.Wrong(); len(wrong) > 0 {
		n.t.Errorf("%s: the driver was called wrongly: %q", what, wrong)
	}
}

// eventually waits; only a failing test waits long.
func (n *diskNode) eventually(what string, is func() bool) {
	n.t.Helper()
	eventually(n.t, what, is)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (n *diskNode) unstaged() {
	n.t.Helper()
	n.eventually("the volume to be unstaged", func() bool { return len(n.mounts.InUse()) == 0 })
}

// tree returns the files below a directory that begin like this, without temporary ones.
func (n *diskNode) tree(below string) (out []string) {
	n.t.Helper()
	root := filepath.Join(n.node.root, below)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != root {
			out = append(out, strings.TrimPrefix(path, n.node.root+"/"))
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func (n *diskNode) data(dir string) (out map[string]string) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.node.root, dir, "vol_data.json"))
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func diskPod(uid string) *v1.Pod {
	return podtest.New("shop/web-"+uid, podtest.UID(types.UID(uid)),
		podtest.Containers("c"), podtest.Mounts(pvcVolume("data")))
}

// request returns the driver's last call of that name.
func request[T any](n *diskNode, rpc string) T {
	n.t.Helper()
	calls := n.driver.Calls(rpc)
	if len(calls) == 0 {
		n.t.Fatalf("no call of %s", rpc)
	}
	out, is := calls[len(calls)-1].Request.(T)
	if !is {
		n.t.Fatalf("a request %T", calls[len(calls)-1].Request)
	}
	return out
}

const (
	// diskDir is where the kubelet has what is staged of vol-1, and attachmentID its name of the
	// attachment.
	diskDir = "plugins/kubernetes.io/csi/disk.example.com/" +
		"d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49"
	attachmentID = "csi-c1d69041dea1847c5cf2d694b8265e08131eb3f05d922a3fd2205935045e520e"
	publishDir   = "pods/u/volumes/kubernetes.io~csi/pv"
)

// A persistent volume is staged once, published for each pod, and taken back when the last has gone;
// files are the kubelet's.
func TestDisk(t *testing.T) {
	n := newDisk(t, stages)
	pods := []*v1.Pod{diskPod("u"), diskPod("w")}
	setUp(t, n.Volumes, pods[0])
	n.did("the first pod", csitest.Stage, csitest.Publish)
	setUp(t, n.Volumes, pods[0])
	setUp(t, n.Volumes, pods[1])
	n.did("the second pod", csitest.Publish)
	want := []string{diskDir, diskDir + "/globalmount", diskDir + "/vol_data.json"}
	if diff := cmp.Diff(want, n.tree(filepath.Dir(diskDir))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"driverName": csitest.Name, "volumeHandle": "vol-1"},
		n.data(diskDir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"driverName": csitest.Name, "volumeHandle": "vol-1",
		"specVolID": "pv", "nodeName": "node", "volumeLifecycleMode": "Persistent",
		"attachmentID": attachmentID}, n.data(publishDir)); diff != "" {
		t.Error(diff)
	}
	for _, dir := range []string{diskDir, publishDir} {
		info, err := os.Stat(filepath.Join(n.node.root, dir, "vol_data.json"))
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("the record in %s: %v, %v", dir, info, err)
		}
	}
	if diff := cmp.Diff([]string{"kubernetes.io/csi/disk.example.com^vol-1"}, n.mounts.InUse()); diff != "" {
		t.Error(diff)
	}
	tearDown(t, n, "u")
	n.did("the first has gone", csitest.Unpublish)
	setUp(t, n.Volumes, pods[1])
	tearDown(t, n, "w")
	n.unstaged()
	n.did("the last has gone", csitest.Unpublish, csitest.Unstage)
	if left := append(n.tree("pods"), n.tree(filepath.Dir(diskDir))...); len(left) > 0 || len(n.mounter.MountPoints) > 0 {
		t.Errorf("left %q, %v", left, n.mounter.MountPoints)
	}
}

func tearDown(t *testing.T, n *diskNode, uid types.UID) {
	t.Helper()
	if err := n.TearDown(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
}

// Calls say of the volume and its pod what the API says.
func TestDiskRequests(t *testing.T) {
	n := newDisk(t, stages, multi)
	pv := n.pvcs.volumes["pv"]
	pv.Spec.MountOptions = []string{"noatime"}
	pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "ns", Name: "stage"}
	pv.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "ns", Name: "publish"}
	n.objects.secrets = map[string]string{"ns/stage": "s", "ns/publish": "p"}
	n.objects.has(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		PodInfoOnMount:       ptr.To(true),
		TokenRequests:        []storagev1.TokenRequest{{Audience: "a"}, {}},
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
	}})
	pod := diskPod("u")
	pod.Spec.ServiceAccountName = "robot"
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	setUp(t, n.Volumes, pod)
	staged := request[*csipb.NodeStageVolumeRequest](n, csitest.Stage)
	published := request[*csipb.NodePublishVolumeRequest](n, csitest.Publish)
	about := map[string]string{"device": "disk.example.com vol-1"}
	if diff := cmp.Diff(about, staged.GetPublishContext()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(about, published.GetPublishContext()); diff != "" {
		t.Error(diff)
	}
	m := published.GetVolumeCapability().GetMount()
	if staged.GetSecrets()["k"] != "s" || published.GetSecrets()["k"] != "p" ||
		!published.GetReadonly() || m.GetFsType() != "ext4" ||
		!slices.Equal(m.GetMountFlags(), []string{"noatime"}) ||
		published.GetStagingTargetPath() != staged.GetStagingTargetPath() ||
		published.GetTargetPath() != filepath.Join(n.node.root, publishDir, "mount") ||
		published.GetVolumeCapability().GetAccessMode().GetMode() !=
			csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("staged %v\npublished %v", staged, published)
	}
	tokens := `{"":{"token":"u@","expirationTimestamp":"1970-01-01T00:00:00Z"},` +
		`"a":{"token":"u@a","expirationTimestamp":"1970-01-01T00:00:00Z"}}`
	want := map[string]string{"tier": "fast", "csi.storage.k8s.io/pod.name": "web-u",
		"csi.storage.k8s.io/pod.namespace": "shop", "csi.storage.k8s.io/pod.uid": "u",
		"csi.storage.k8s.io/serviceAccount.name": "robot", "csi.storage.k8s.io/ephemeral": "false",
		"csi.storage.k8s.io/serviceAccount.tokens": tokens}
	if diff := cmp.Diff(want, published.GetVolumeContext()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"tier": "fast"}, staged.GetVolumeContext()); diff != "" {
		t.Error(diff)
	}
	n.objects.change(func(o *diskObjects) { o.object.Spec.ServiceAccountTokenInSecrets = ptr.To(true) })
	other := diskPod("w")
	setUp(t, n.Volumes, other)
	published = request[*csipb.NodePublishVolumeRequest](n, csitest.Publish)
	if secrets := published.GetSecrets(); secrets["k"] != "p" ||
		!strings.Contains(secrets["csi.storage.k8s.io/serviceAccount.tokens"], "w@a") {
		t.Errorf("secrets %v", secrets)
	}
}

// noAnswer is the error of an API server that is away: it may have all that a pod needs.
const noAnswer = "no answer"

// A pod waits for the driver, for the attachment and for what fails, with the kubelet's words; the
// volume is in use meanwhile, and is not taken back if the driver never was asked for it.
func TestDiskThatCannotCome(t *testing.T) {
	n := newDisk(t, stages)
	pod := diskPod("u")
	n.objects.change(func(o *diskObjects) { o.unattached = true })
	fails := func(want string) {
		t.Helper()
		n.eventually("the error "+want, func() bool {
			err := n.SetUp(t.Context(), pod)
			return err != nil && strings.HasPrefix(err.Error(), want)
		})
		if len(n.mounts.InUse()) != 1 || !n.objects.used {
			t.Errorf("in use while %s: %q, asked so: %t", want, n.mounts.InUse(), n.objects.used)
		}
	}
	lacks := func(want string) {
		t.Helper()
		unknown, err := n.Lacking(t.Context(), pod)
		if err == nil || !strings.HasPrefix(err.Error(), want) || unknown != strings.HasSuffix(want, noAnswer) {
			t.Errorf("it lacks %v, unknown is %v, want %s", err, unknown, want)
		}
		if usual := strings.Contains(want, "is not attached"); IsUsual(err) != usual {
			t.Errorf("it lacks %v, which is usual: %t", err, !usual)
		}
	}
	const waiting = `MountVolume.WaitForAttach failed for volume "pv" : `
	lacks(waiting + "volume vol-1 is not attached for volume attachment csi-")
	if n.objects.used { // a pod that is not admitted uses nothing
		t.Error("asked for a volume that nobody uses as for one in use")
	}
	fails(waiting + "volume vol-1 is not attached for volume attachment csi-")
	if err := n.SetUp(t.Context(), pod); !IsUsual(err) || IsUsual(errors.Join(err, errors.New("other"))) {
		t.Errorf("a volume that is not attached yet is no news, anything else is: %v", err)
	}
	n.objects.change(func(o *diskObjects) { o.failed = errors.New("the disk is on fire") })
	lacks(waiting + "the disk is on fire")
	n.objects.change(func(o *diskObjects) { o.failed = operation.Unanswered{Err: errors.New(noAnswer)} })
	lacks(waiting + noAnswer)
	n.objects.change(func(o *diskObjects) { o.failed, o.away = errors.New("the disk is on fire"), errors.New(noAnswer) })
	lacks(waiting + noAnswer)
	n.objects.change(func(o *diskObjects) { o.away = nil })
	fails(waiting + "the disk is on fire")
	n.objects.change(func(o *diskObjects) { o.unattached = false })
	n.leave()
	const absent = `MountVolume.MountDevice failed for volume "pv" : kubernetes.io/csi: ` +
		"attacher.MountDevice failed to create newCsiDriverClient: driver name disk.example.com not " +
		"found in the list of registered CSI drivers"
	lacks(absent)
	fails(absent)
	tearDown(t, n, "u")
	n.did("a pod that never had it")
	if used := n.mounts.InUse(); len(used) > 0 {
		t.Errorf("in use %q", used)
	}
	n.register()
	n.driver.Fault(csitest.Stage, csitest.Fault{Err: status.Error(codes.Internal, "no mkfs")})
	fails(`MountVolume.MountDevice failed for volume "pv" : rpc error: code = Internal desc = no mkfs`)
	if left := n.tree(filepath.Dir(diskDir)); len(left) > 0 {
		t.Errorf("after a staging that failed: %q", left)
	}
	n.driver.Fault(csitest.Stage, csitest.Fault{})
	n.driver.Fault(csitest.Publish, csitest.Fault{Err: status.Error(codes.Internal, "no bind")})
	fails(`MountVolume.SetUp failed for volume "pv" : rpc error: code = Internal desc = no bind`)
	if left := n.tree("pods/u/volumes/kubernetes.io~csi"); len(left) > 0 {
		t.Errorf("after a publishing that failed: %q", left)
	}
	n.driver.Forget()
	tearDown(t, n, "u")
	n.unstaged()
	n.did("a pod that only staged it", csitest.Unstage)
}

// A call whose outcome is not known is undone, also by the next run of the agent.
func TestDiskHalfDone(t *testing.T) {
	for name, test := range map[string]struct {
		rpc  string
		done bool
		want []string
	}{
		"staged, not known":        {csitest.Stage, true, []string{csitest.Unstage}},
		"not staged, not known":    {csitest.Stage, false, []string{csitest.Unstage}},
		"published, not known":     {csitest.Publish, true, []string{csitest.Unpublish, csitest.Unstage}},
		"not published, not known": {csitest.Publish, false, []string{csitest.Unpublish, csitest.Unstage}},
	} {
		for _, again := range []bool{false, true} {
			n := newDisk(t, stages)
			n.driver.Fault(test.rpc, csitest.Fault{Done: test.done,
				Err: status.Error(codes.Unavailable, "it ended"), Count: 1})
			if err := n.SetUp(t.Context(), diskPod("u")); err == nil {
				t.Fatal(name, ": no error")
			}
			n.driver.Forget()
			if again {
				n.start()
			}
			tearDown(t, n, "u")
			n.unstaged()
			n.did(name, test.want...)
			if left := n.tree(filepath.Dir(diskDir)); len(left) > 0 ||
				len(n.driver.Staged())+len(n.driver.Published()) > 0 {
				t.Errorf("%s: left %q", name, left)
			}
		}
	}
}

// The next run of the agent finds what is mounted, and takes it back; nothing is published again.
func TestDiskAfterRestart(t *testing.T) {
	n := newDisk(t, stages)
	pod := diskPod("u")
	setUp(t, n.Volumes, pod)
	n.driver.Forget()
	n.start()
	if used := n.mounts.InUse(); len(used) != 1 {
		t.Errorf("in use at the start: %q", used)
	}
	setUp(t, n.Volumes, pod)
	n.did("the same pod")
	setUp(t, n.Volumes, diskPod("w")) // whether it is staged is not known
	n.did("another pod", csitest.Stage, csitest.Publish)
	n.start()
	tearDown(t, n, "u")
	tearDown(t, n, "w")
	n.unstaged()
	n.did("both have gone", csitest.Unpublish, csitest.Unpublish, csitest.Unstage)
}

// After a reboot nothing is mounted: the volume is staged and published again.
func TestDiskAfterReboot(t *testing.T) {
	n := newDisk(t, stages)
	pod := diskPod("u")
	setUp(t, n.Volumes, pod)
	n.driver.Lose()
	n.driver.Forget()
	for _, m := range n.mounter.MountPoints {
		if err := n.mounter.Unmount(m.Path); err != nil {
			t.Fatal(err)
		}
	}
	n.start()
	setUp(t, n.Volumes, pod)
	n.did("after the reboot", csitest.Stage, csitest.Publish)
}

// A pod is not gone before its volume is unpublished: that is tried until the driver says so.
func TestDiskIsTakenBackUntilItIs(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	n.driver.Forget()
	n.driver.Fault(csitest.Unpublish, csitest.Fault{Err: status.Error(codes.Internal, "busy"), Count: 2})
	n.driver.Fault(csitest.Unstage, csitest.Fault{Err: status.Error(codes.Internal, "busy"), Count: 2})
	n.eventually("the pod to be gone", func() bool {
		err := n.TearDown(t.Context(), "u")
		if at := cri.PausedUntil(err); err != nil && (at.IsZero() || time.Until(at) > time.Second) {
			t.Errorf("it is to be tried again at %v: %v", at, err)
		}
		there, _ := n.node.isMounted(filepath.Join(n.node.root, publishDir, "mount"))
		if err != nil != there {
			t.Errorf("an error %v, mounted %t", err, there)
		}
		return err == nil
	})
	n.unstaged()
	n.did("all calls", csitest.Unpublish, csitest.Unpublish, csitest.Unpublish, csitest.Unstage,
		csitest.Unstage, csitest.Unstage)
	setUp(t, n.Volumes, diskPod("u"))
	n.leave()
	if err := n.TearDown(t.Context(), "u"); err == nil || !strings.Contains(err.Error(),
		"kubernetes.io/csi: Unmounter.TearDownAt failed: driver name disk.example.com not found") {
		t.Errorf("without the driver: %v", err)
	}
	n.register()
	tearDown(t, n, "u")
}

// A driver that hangs keeps its own pods waiting, and no others. The call ends when its pod goes, is
// undone although the driver still hangs, and leaves nothing behind.
func TestDiskThatHangs(t *testing.T) {
	for rpc, want := range map[string][]string{
		csitest.Stage:   {csitest.Stage, csitest.Unstage},
		csitest.Publish: {csitest.Stage, csitest.Publish, csitest.Unpublish, csitest.Unstage},
	} {
		n := newDisk(t, stages)
		n.driver.Fault(rpc, csitest.Fault{Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error, 1)
		go func() { cancelled <- n.SetUp(ctx, diskPod("u")) }()
		n.eventually("the call", func() bool { return len(n.driver.Calls(rpc)) == 1 })
		setUp(t, n.Volumes, podtest.New("shop/b",
			podtest.Containers("c"), podtest.Mounts(empty("scratch", ""))))
		cancel()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: it waited until %v", rpc, err)
		}
		if ended := n.driver.Canceled(); ended > 0 {
			t.Errorf("%s: the call ended before the pod was to go", rpc)
		}
		tearDown(t, n, "u")
		n.unstaged()
		if left := n.driver.Published(); len(left) > 0 {
			t.Errorf("%s: published %q", rpc, left)
		}
		n.did(rpc, want...)
	}
}

// A pod that goes ends no call for another one, and does not wait for it; the other one's is made anew
// without a pause if its own was ended.
func TestDiskThatHangsForAnother(t *testing.T) {
	n := newDisk(t, stages)
	n.driver.Fault(csitest.Stage, csitest.Fault{Hang: true, Count: 1})
	n.pauses = await.Pauses{First: time.Hour, Last: time.Hour}
	n.start()
	var pods sync.WaitGroup
	begin := func(uid types.UID) (end func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		pods.Go(func() { ended <- n.SetUp(ctx, diskPod(string(uid))) })
		return func() error {
			cancel()
			return <-ended
		}
	}
	endU := begin("u")
	n.eventually("the call", func() bool { return len(n.driver.Calls(csitest.Stage)) == 1 })
	endV, endW := begin("v"), begin("w")
	n.eventually("all pods", func() bool { return len(n.mounts.Uses("v"))+len(n.mounts.Uses("w")) == 2 })
	if err := endV(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	tearDown(t, n, "v")
	if ended := n.driver.Canceled(); ended > 0 {
		t.Error("the pod's end ended another one's call")
	}
	if err := endU(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	tearDown(t, n, "u")
	n.eventually("the other pod's volume", func() bool { return len(n.driver.Published()) == 1 })
	n.did("all calls", csitest.Stage, csitest.Stage, csitest.Publish)
	_ = endW() // it has ended, or ends now
	pods.Wait()
	tearDown(t, n, "w")
	n.unstaged()
}

// refusal is an answer of a driver that will not be at work on the call any more.
func refusal() error { return status.Error(codes.Internal, "it cannot") }
