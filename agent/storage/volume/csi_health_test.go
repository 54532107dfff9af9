package volume

import (
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
)

func entry(s csipb.VolumeHealthErrorType, reason, message string) *csipb.VolumeHealth_VolumeHealthEntry {
	return &csipb.VolumeHealth_VolumeHealthEntry{Status: s, Reason: reason, Message: message}
}

// A driver is asked about the volumes that pods have or tried to have; it says what is wrong with them,
// as far as the API server takes it. If it does not answer, what it said before stays.
func TestDiskHealth(t *testing.T) {
	n := newDisk(t, stages, csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH)
	pods := []*v1.Pod{diskPod("u")}
	is := func(what string, want Health) {
		t.Helper()
		all := map[types.UID]Health{"u": want}
		if want == nil {
			all = map[types.UID]Health{}
		}
		if diff := cmp.Diff(all, n.Meter.Health(t.Context(), pods)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	is("a pod that has nothing yet", nil)
	n.driver.Fault(csitest.Stage, csitest.Fault{Err: status.Error(codes.Internal, "no"), Count: 1})
	if err := n.SetUp(t.Context(), pods[0]); err == nil {
		t.Fatal("the fault did not come")
	}
	is("a pod that tried", Health{"v": nil})
	if req := request[*csipb.NodeGetVolumeHealthRequest](n, csitest.VolumeHealth); req.GetVolumeId() != "vol-1" ||
		req.GetStagingTargetPath() != "" || req.GetVolumePublishPath() != "" {
		t.Errorf("asked %v", req)
	}
	n.eventually("the volume", func() bool { return n.SetUp(t.Context(), pods[0]) == nil })
	ill := []*csipb.VolumeHealth_VolumeHealthEntry{
		entry(csipb.VolumeHealthErrorType_DEGRADED, "Slow", "one"), entry(csipb.VolumeHealthErrorType_DEGRADED, "Slow", "two"),
		entry(csipb.VolumeHealthErrorType_DATA_LOSS, "Slow", strings.Repeat("x", 3000)),
		entry(csipb.VolumeHealthErrorType_INACCESSIBLE, "", "no reason"), entry(99, "Unknown", ""),
		entry(csipb.VolumeHealthErrorType_INACCESSIBLE, strings.Repeat("r", 257), ""),
		entry(csipb.VolumeHealthErrorType_INACCESSIBLE, "Gone", "")}
	n.driver.Ill(ill, nil)
	got := n.Meter.Health(t.Context(), pods)["u"]["v"]
	if len(got) != 3 || got[0] != (v1.VolumeHealthCondition{Status: v1.VolumeHealthDegraded, Reason: "Slow", Message: "one"}) ||
		got[1].Status != v1.VolumeHealthDataLoss || len(got[1].Message) > 1024 || got[2].Status != v1.VolumeHealthInaccessible {
		t.Errorf("got %+v", got)
	}
	req := request[*csipb.NodeGetVolumeHealthRequest](n, csitest.VolumeHealth)
	if !strings.HasSuffix(req.GetStagingTargetPath(), diskDir+"/globalmount") ||
		!strings.HasSuffix(req.GetVolumePublishPath(), publishDir+"/mount") {
		t.Errorf("asked %v", req)
	}
	n.driver.Fault(csitest.VolumeHealth, csitest.Fault{Err: status.Error(codes.Internal, "no"), Count: 1})
	is("no answer", Health{"v": got})
	n.driver.Ill(nil, nil)
	is("well again", Health{"v": nil})
	pods = nil
	if got := n.Meter.Health(t.Context(), pods); len(got) != 0 || len(n.Meter.healths.all) != 0 {
		t.Errorf("kept %v", got)
	}
	other := newDisk(t, stages)
	setUp(t, other.Volumes, diskPod("u"))
	if got := other.Meter.Health(t.Context(), []*v1.Pod{diskPod("u")}); len(got) != 0 || len(other.driver.Calls(csitest.VolumeHealth)) != 0 {
		t.Errorf("a driver that cannot say: %v", got)
	}
}
