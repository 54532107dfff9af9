package volume

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/stats/diskusage"
	"github.com/numalet/numalet/agent/volume/csi"
	"github.com/numalet/numalet/agent/volume/csi/csitest"
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
		return n.Measure(t.Context(), pods, func(by string, _ time.Duration) { looked = append(looked, by) })
	}
	got := measure()
	want := diskusage.Room{Capacity: 100, Used: 60, Available: 40, Inodes: 10, InodesUsed: 6, InodesFree: 4}
	if len(got.Claims) != 1 || got.Claims[0].Room != want || len(got.Claims[0].Pods) != 2 ||
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
		if got := measure(); len(got.Claims) > 0 {
			t.Errorf("of %s came %+v", name, got.Claims)
		}
	}
	other := newDisk(t, stages)
	setUp(t, other.Volumes, pods[0])
	if got := other.Measure(t.Context(), pods[:1], func(string, time.Duration) {
		t.Error("a driver that cannot measure was looked at")
	}); len(got.Claims) > 0 {
		t.Errorf("got %+v", got.Claims)
	}
}

// A driver that does not answer is asked for one of its volumes, and for no other.
func TestMeasureOfASilentDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &Volumes{filesystems: filesystems{calls: &calls{}}, cfg: Config{CSI: &csi.Mounts{}}}
		pod := diskPod("u")
		pv := func(name string) used {
			return used{claim: name, plugin: csiVolumes(), pv: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
					Driver: csitest.Name, VolumeHandle: "vol-1"}}}}}
		}
		u := pv("a")
		u.pv.Name = "a"
		release := make(chan struct{})
		v.calls.begin("measure "+v.cfg.CSI.Target(csi.Volume{Path: "a"}, pod.UID), func() error {
			<-release
			return nil
		})
		silent := map[string]bool{}
		began := time.Now()
		if _, _, err := (disks{v}).measure(t.Context(), pod, u, "", silent); err == nil || !silent[csitest.Name] {
			t.Errorf("got %v, silent %v", err, silent)
		}
		if took := time.Since(began); took != measureWait {
			t.Errorf("it took %v", took)
		}
		if _, _, err := (disks{v}).measure(t.Context(), pod, pv("b"), "", silent); err == nil ||
			time.Since(began) != measureWait {
			t.Errorf("the next volume: %v, %v", err, time.Since(began))
		}
		close(release)
	})
}
