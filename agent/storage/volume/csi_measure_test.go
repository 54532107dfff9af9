package volume

import (
	"reflect"
	"slices"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
)

// A driver says what room its volumes have, if it can; what it says is checked, and it is not waited
// for.
func TestMeasureDisk(t *testing.T) {
	n := newDisk(t, stages, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	pods := []*v1.Pod{diskPod("u"), diskPod("w")}
	for _, pod := range pods {
		setUp(t, n.Volumes, pod)
	}
	usage := []*csipb.VolumeUsage{
		{Unit: csipb.VolumeUsage_BYTES, Total: 100, Used: 60, Available: 40},
		{Unit: csipb.VolumeUsage_INODES, Total: 10, Used: 6, Available: 4},
	}
	n.driver.Measured(&csipb.NodeGetVolumeStatsResponse{Usage: usage})
	var looked []string
	measure := func() Measured {
		return n.Meter.Measure(t.Context(), pods, func(by string, _ time.Duration) { looked = append(looked, by) })
	}
	got := measure()
	want := diskusage.Room{Capacity: 100, Used: 60, Available: 40, Inodes: 10, InodesUsed: 6, InodesFree: 4}
	if len(got.Rooms) != 1 || got.Rooms[0].Room != want || len(got.Rooms[0].Pods) != 2 ||
		!slices.Equal(looked, []string{csitest.Name}) ||
		got.Actual["kubernetes.io/csi:disk.example.com"] != 2 {
		t.Errorf("got %+v, looked %q", got, looked)
	}
	req := request[*csipb.NodeGetVolumeStatsRequest](n, csitest.Stats)
	if req.GetVolumeId() != "vol-1" || req.GetVolumePath() != n.mounts.Target(
		csi.Volume{Path: "pv"}, "u") {
		t.Errorf("asked %v", req)
	}
	for name, said := range map[string][]*csipb.VolumeUsage{
		"nothing": nil, "a negative number": {{Unit: csipb.VolumeUsage_BYTES, Total: -1}},
	} {
		n.driver.Measured(&csipb.NodeGetVolumeStatsResponse{Usage: said})
		if got := measure(); len(got.Rooms) > 0 {
			t.Errorf("of %s came %+v", name, got.Rooms)
		}
	}
	other := newDisk(t, stages)
	setUp(t, other.Volumes, pods[0])
	if got := other.Meter.Measure(t.Context(), pods[:1], func(string, time.Duration) {
		t.Error("a driver that cannot measure was looked at")
	}); len(got.Rooms) > 0 {
		t.Errorf("got %+v", got.Rooms)
	}
}

// Volumes of a pod's own spec are measured as those of PVCs.
func TestMeasureOfInlineDisks(t *testing.T) {
	n := newDisk(t, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	n.driver.Measured(&csipb.NodeGetVolumeStatsResponse{Usage: []*csipb.VolumeUsage{{
		Unit: csipb.VolumeUsage_BYTES, Total: 100}}})
	n.objects.has(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
		storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}}})
	inline := diskPod("u")
	inline.Spec.Volumes = []v1.Volume{{Name: inline.Spec.Volumes[0].Name, VolumeSource: v1.VolumeSource{
		CSI: &v1.CSIVolumeSource{Driver: csitest.Name}}}}
	setUp(t, n.Volumes, inline)
	looked := func(string, time.Duration) {}
	got := n.Meter.Measure(t.Context(), []*v1.Pod{inline}, looked)
	if len(got.Rooms) != 1 || got.Rooms[0].PVC != "" || got.Rooms[0].Room.Capacity != 100 ||
		got.Rooms[0].At.IsZero() || !slices.Equal(got.Rooms[0].Pods, []PodVolume{{"u", inline.Spec.Volumes[0].Name}}) {
		t.Errorf("got %+v", got.Rooms)
	}
	req := request[*csipb.NodeGetVolumeStatsRequest](n, csitest.Stats)
	if req.GetVolumeId() != request[*csipb.NodePublishVolumeRequest](n, csitest.Publish).GetVolumeId() {
		t.Errorf("asked %v", req)
	}
}

// A driver that does not answer for one volume is asked once for it, is waited for a moment, and says
// what room its other volumes have. What it said before still counts, until it says something else.
func TestMeasureOfADriverThatHangs(t *testing.T) {
	n := newDisk(t, stages, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	pods := []*v1.Pod{diskPod("u")}
	setUp(t, n.Volumes, pods[0])
	said := func(total int64) {
		n.driver.Measured(&csipb.NodeGetVolumeStatsResponse{Usage: []*csipb.VolumeUsage{{
			Unit: csipb.VolumeUsage_BYTES, Total: total}}})
	}
	measure := func() Measured { return n.Meter.Measure(t.Context(), pods, func(string, time.Duration) {}) }
	said(100)
	first := measure()
	n.driver.Fault(csitest.Stats, csitest.Fault{Err: status.Error(codes.Unavailable, "away")})
	if got := measure(); !reflect.DeepEqual(got, first) {
		t.Errorf("without an answer: %+v, before %+v", got, first)
	}
	n.leave()
	if got := measure(); !reflect.DeepEqual(got, first) {
		t.Errorf("without the driver: %+v, before %+v", got, first)
	}
	n.register()
	n.driver.Fault(csitest.Stats, csitest.Fault{Err: status.Error(codes.Internal, "broken")})
	if got := measure(); len(got.Rooms) != 0 {
		t.Errorf("after a failure: %+v", got.Rooms)
	}
	n.driver.Fault(csitest.Stats, csitest.Fault{})
	said(200)
	if got := measure(); len(got.Rooms) != 1 || got.Rooms[0].Room.Capacity != 200 {
		t.Errorf("afterwards: %+v", got.Rooms)
	}
}
