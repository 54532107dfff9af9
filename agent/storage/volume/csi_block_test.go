package volume

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/test/scratch"
)

// newBlockDisk returns a node whose persistent volume is a device, and a function that makes pods
// with it.
func newBlockDisk(t *testing.T, can ...csipb.NodeServiceCapability_RPC_Type) (
	*diskNode, func(uid string) *v1.Pod) {
	t.Helper()
	if f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0); err != nil {
		scratch.LeaveOut(t, "loop devices cannot be made: "+err.Error())
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n := newDisk(t, can...)
	n.pvcs.volumes["pv"].Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	return n, func(uid string) *v1.Pod {
		pod := diskPod(uid)
		c := &pod.Spec.Containers[0]
		c.VolumeDevices, c.VolumeMounts = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}, nil
		return pod
	}
}

// A block volume is measured by its driver once it is published, at the path that the kubelet names.
func TestMeasureBlockDisk(t *testing.T) {
	n, podWith := newBlockDisk(t, stages, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	n.driver.Measured(&csipb.NodeGetVolumeStatsResponse{Usage: []*csipb.VolumeUsage{{
		Unit: csipb.VolumeUsage_BYTES, Total: 100}}})
	pods := []*v1.Pod{podWith("u")}
	measure := func() Measured { return n.Meter.Measure(t.Context(), pods, func(string, time.Duration) {}) }
	n.driver.Fault(csitest.Publish, csitest.Fault{Err: status.Error(codes.Internal, "not yet"), Count: 1})
	if err := n.SetUp(t.Context(), pods[0]); err == nil {
		t.Fatal("the fault did not come")
	}
	if got := measure(); len(got.Rooms)+len(got.Actual) != 0 || len(n.driver.Calls(csitest.Stats)) != 0 {
		t.Errorf("before it is published: %+v", got)
	}
	n.mounts.DriversChanged()
	setUp(t, n.Volumes, pods[0])
	if got := measure(); len(got.Rooms) != 1 || got.Rooms[0].Room.Capacity != 100 || got.Rooms[0].PVC != "data" {
		t.Errorf("got %+v", got)
	}
	req := request[*csipb.NodeGetVolumeStatsRequest](n, csitest.Stats)
	if want := filepath.Join(n.node.root, blockDir, "pv/dev/u"); req.GetVolumePath() != want {
		t.Errorf("asked about %s, want %s", req.GetVolumePath(), want)
	}
	tearDown(t, n, "u")
	n.unstaged()
}

const blockDir = "plugins/kubernetes.io/csi/volumeDevices"

// A block volume is where the kubelet has it, with a loop device that keeps it open, until the last
// pod has gone.
func TestBlockDisk(t *testing.T) {
	n, podWith := newBlockDisk(t, stages)
	pod := podWith("u")
	dir := setUp(t, n.Volumes, pod)
	setUp(t, n.Volumes, pod)
	n.did("the first pod", csitest.Stage, csitest.Publish)
	want := []string{blockDir + "/publish", blockDir + "/publish/pv", blockDir + "/publish/pv/u",
		blockDir + "/pv", blockDir + "/pv/data", blockDir + "/pv/data/vol_data.json", blockDir + "/pv/dev",
		blockDir + "/pv/dev/u", blockDir + "/staging", blockDir + "/staging/pv"}
	if diff := cmp.Diff(want, n.tree(blockDir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"driverName": csitest.Name, "volumeHandle": "vol-1",
		"specVolID": "pv", "nodeName": "node", "attachmentID": attachmentID},
		n.data(blockDir+"/pv/data")); diff != "" {
		t.Error(diff)
	}
	published, device := filepath.Join(n.node.root, want[2]), filepath.Join(n.node.root, want[7])
	if to, err := os.Readlink(dir + "/volumeDevices/kubernetes.io~csi/pv"); err != nil || to != published {
		t.Errorf("the pod has %s, %v", to, err)
	}
	if mounted, err := n.node.isMounted(device); !mounted || err != nil || !n.makers.mapped.hasLoop(device) {
		t.Errorf("mounted %t, %v, a loop device %t", mounted, err, n.makers.mapped.hasLoop(device))
	}
	devices, err := n.Containers.Devices(pod, &pod.Spec.Containers[0])
	if err != nil || len(devices) != 1 || devices[0].GetContainerPath() != "/dev/x" ||
		devices[0].GetHostPath() != dir+"/volumeDevices/kubernetes.io~csi/pv" {
		t.Errorf("devices %v, %v", devices, err)
	}
	setUp(t, n.Volumes, podWith("w"))
	n.did("the second pod", csitest.Publish)
	n.start() // files are all that is known
	tearDown(t, n, "u")
	if n.makers.mapped.hasLoop(device) {
		t.Error("there is still a loop device")
	}
	n.did("the first has gone", csitest.Unpublish)
	tearDown(t, n, "w")
	n.unstaged()
	n.did("the last has gone", csitest.Unpublish, csitest.Unstage)
	if diff := cmp.Diff([]string{blockDir + "/publish", blockDir + "/staging"}, n.tree(blockDir)); diff != "" {
		t.Error(diff)
	}
	if len(n.mounter.MountPoints) > 0 {
		t.Errorf("left %v", n.mounter.MountPoints)
	}
}

// What came of a block volume by half is taken back, also by the next run of the agent.
func TestBlockDiskHalfDone(t *testing.T) {
	for _, rpc := range []string{csitest.Stage, csitest.Publish} {
		for _, again := range []bool{false, true} {
			n, podWith := newBlockDisk(t, stages)
			n.driver.Fault(rpc, csitest.Fault{Done: true, Err: status.Error(codes.Unavailable, "it ended"),
				Count: 1})
			if err := n.SetUp(t.Context(), podWith("u")); err == nil {
				t.Fatal("no error")
			}
			if again {
				n.start()
			}
			tearDown(t, n, "u")
			n.unstaged()
			if left := append(n.driver.Staged(), n.driver.Published()...); len(left) > 0 ||
				len(n.driver.Wrong()) > 0 {
				t.Errorf("%s: left %q, wrong %q", rpc, left, n.driver.Wrong())
			}
		}
	}
	n, podWith := newBlockDisk(t, stages)
	n.driver.Fault(csitest.Publish, csitest.Fault{Err: refusal(), Count: 1})
	const want = `MapVolume.MapPodDevice failed for volume "pv" : rpc error: code = Internal desc = ` +
		"it cannot"
	if err := n.SetUp(t.Context(), podWith("u")); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	n.driver.Forget()
	tearDown(t, n, "u")
	n.unstaged()
	n.did("it was not published", csitest.Unstage)
}

// A driver that stages nothing is not asked to, and what the agent made is removed.
func TestBlockDiskWithoutStages(t *testing.T) {
	n, podWith := newBlockDisk(t)
	setUp(t, n.Volumes, podWith("u"))
	tearDown(t, n, "u")
	n.unstaged()
	n.did("all calls", csitest.Publish, csitest.Unpublish)
	if diff := cmp.Diff([]string{blockDir + "/publish"}, n.tree(blockDir)); diff != "" {
		t.Error(diff)
	}
}
