package volume

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/agent/storage/volume/operation"
)

const expands = csipb.NodeServiceCapability_RPC_EXPAND_VOLUME

func sized(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

// What is to grow follows from the PVC, its volume and what this node has grown.
func TestGrowthOf(t *testing.T) {
	const pending, working = v1.PersistentVolumeClaimNodeResizePending,
		v1.PersistentVolumeClaimNodeResizeInProgress
	for name, test := range map[string]struct {
		has, want, allocated string
		step                 v1.ClaimResourceStatus
		many, stays          bool
		here                 grown
		to                   string
		tracked, written     bool
	}{
		"nothing":                      {has: "1Gi", want: "1Gi"},
		"an old controller":            {has: "1Gi", want: "2Gi", to: "2Gi"},
		"pending":                      {has: "1Gi", want: "2Gi", allocated: "2Gi", step: pending, to: "2Gi", tracked: true},
		"interrupted":                  {has: "1Gi", want: "2Gi", allocated: "2Gi", step: working, to: "2Gi", tracked: true},
		"the controller is at work":    {has: "1Gi", want: "2Gi", allocated: "2Gi", step: v1.PersistentVolumeClaimControllerResizeInProgress},
		"infeasible":                   {has: "1Gi", want: "2Gi", allocated: "2Gi", step: v1.PersistentVolumeClaimNodeResizeInfeasible},
		"smaller than the volume":      {has: "1Gi", want: "3Gi", allocated: "2Gi", step: pending, to: "2Gi", tracked: true},
		"not while it is used":         {has: "1Gi", want: "2Gi", here: grown{unfit: true}},
		"by another node":              {has: "2Gi", want: "2Gi", here: grown{size: resource.MustParse("1Gi")}},
		"by another node, for many":    {has: "2Gi", want: "2Gi", many: true, here: grown{size: resource.MustParse("1Gi")}, to: "2Gi", written: true},
		"for many, not needed":         {has: "2Gi", want: "2Gi", many: true, stays: true, here: grown{size: resource.MustParse("1Gi")}},
		"for many, done here":          {has: "2Gi", want: "2Gi", many: true, here: grown{size: resource.MustParse("2Gi")}},
		"for many, nothing known here": {has: "2Gi", want: "2Gi", many: true},
	} {
		pvc, pv := &v1.PersistentVolumeClaim{}, &v1.PersistentVolume{}
		pvc.Status.Capacity, pv.Spec.Capacity = sized(test.has), sized(test.want)
		if test.allocated != "" {
			pvc.Status.AllocatedResources = sized(test.allocated)
		}
		if test.step != "" {
			pvc.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
				v1.ResourceStorage: test.step}
		}
		if test.many {
			pvc.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		}
		if test.stays {
			pvc.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": ""}
		}
		got := growthOf(pvc, pv, test.here)
		size := ""
		if !got.to.IsZero() {
			size = got.to.String()
		}
		if size != test.to || got.tracked != test.tracked || got.written != test.written {
			t.Errorf("%s: %s, told %t, written %t", name, size, got.tracked, got.written)
		}
	}
}

// growingDisk returns a node with a PVC of 1Gi whose volume has 2Gi by now.
func growingDisk(t *testing.T, tracked bool) (*diskNode, *[]string) {
	t.Helper()
	n := newDisk(t, stages, expands)
	var events []string
	n.cfg.Tell = func(about runtime.Object, eventType, reason, message string) {
		events = append(events, fmt.Sprintf("%T %s %s: %s", about, eventType, reason, message))
	}
	n.start()
	n.pvcs.pvcs["data"].Status.Capacity = sized("1Gi")
	n.pvcs.volumes["pv"].Spec.Capacity = sized("1Gi")
	setUp(t, n.Volumes, diskPod("u"))
	n.larger("2Gi", tracked)
	n.driver.Forget()
	return n, &events
}

// larger makes the volume larger, as a controller does.
func (n *diskNode) larger(size string, tracked bool) {
	pvc := n.pvcs.pvcs["data"].DeepCopy()
	n.pvcs.volumes["pv"].Spec.Capacity = sized(size)
	pvc.Spec.Resources.Requests = sized(size)
	if tracked {
		pvc.Status.AllocatedResources = sized(size)
		pvc.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
			v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	}
	pvc.Status.Conditions = []v1.PersistentVolumeClaimCondition{{
		Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	n.pvcs.pvcs["data"] = pvc
}

// A volume that became larger is expanded for the pod that runs, once, and the PVC says so.
func TestDiskGrows(t *testing.T) {
	for _, tracked := range []bool{false, true} {
		n, events := growingDisk(t, tracked)
		pods := []*v1.Pod{diskPod("u")}
		for range 2 {
			if err := n.Grower.Grow(t.Context(), pods); err != nil {
				t.Fatal(err)
			}
		}
		n.did("it grew", csitest.Expand)
		setUp(t, n.Volumes, pods[0])
		n.did("it has grown")
		got := n.pvcs.pvcs["data"].Status
		if size := got.Capacity[v1.ResourceStorage]; size.String() != "2Gi" ||
			got.AllocatedResourceStatuses != nil || len(got.Conditions) > 0 {
			t.Errorf("the claim says %+v", got)
		}
		const said = ` Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for ` +
			`volume "pv" `
		if want := []string{"*v1.Pod" + said, "*v1.PersistentVolumeClaim" + said}; !slices.Equal(*events, want) {
			t.Errorf("events %q", *events)
		}
	}
}

func TestDiskGrowsRequest(t *testing.T) {
	n, _ := growingDisk(t, true)
	var req *csipb.NodeExpandVolumeRequest
	if err := n.Grower.Grow(t.Context(), []*v1.Pod{diskPod("u")}); err != nil {
		t.Fatal(err)
	}
	req = request[*csipb.NodeExpandVolumeRequest](n, csitest.Expand)
	if req.GetCapacityRange().GetRequiredBytes() != 2<<30 || req.GetVolumeId() != "vol-1" ||
		!strings.HasSuffix(req.GetVolumePath(), publishDir+"/mount") ||
		!strings.HasSuffix(req.GetStagingTargetPath(), diskDir+"/globalmount") ||
		req.GetVolumeCapability().GetMount().GetFsType() != "ext4" {
		t.Errorf("asked %v", req)
	}
}

// A volume that does not grow says why, in the PVC and in an event, and what follows depends on the
// driver's error.
func TestDiskThatDoesNotGrow(t *testing.T) {
	const storage = v1.ResourceStorage
	for name, test := range map[string]struct {
		code  codes.Code
		step  v1.ClaimResourceStatus
		says  bool // the PVC has the condition
		event bool
		calls int // of two tries
	}{
		"not known":    {codes.Unavailable, v1.PersistentVolumeClaimNodeResizeInProgress, false, true, 2},
		"failed":       {codes.Internal, v1.PersistentVolumeClaimNodeResizeInProgress, true, true, 2},
		"infeasible":   {codes.OutOfRange, v1.PersistentVolumeClaimNodeResizeInfeasible, true, true, 1},
		"while in use": {codes.FailedPrecondition, v1.PersistentVolumeClaimNodeResizeInProgress, true, false, 1},
	} {
		n, events := growingDisk(t, true)
		n.driver.Fault(csitest.Expand, csitest.Fault{Err: status.Error(test.code, "no room")})
		for i := range 2 {
			err := n.Grower.Grow(t.Context(), []*v1.Pod{diskPod("u")})
			if fails := test.event && i < test.calls; (err != nil) != fails {
				t.Errorf("%s: try %d: %v", name, i, err)
			}
		}
		got := n.pvcs.pvcs["data"].Status
		has := slices.ContainsFunc(got.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == v1.PersistentVolumeClaimNodeResizeError &&
				strings.HasPrefix(c.Message, "failed to expand pvc with Expander.NodeExpand failed to expand")
		})
		reported := slices.ContainsFunc(*events, func(e string) bool {
			return strings.HasPrefix(e, "*v1.Pod Warning VolumeResizeFailed: NodeExpandVolume."+
				`NodeExpandVolume failed for volume "pv" : `)
		})
		if calls := len(n.driver.Calls(csitest.Expand)); got.AllocatedResourceStatuses[storage] != test.step ||
			has != test.says || reported != test.event || calls != test.calls {
			t.Errorf("%s: %+v, events %q, %d calls", name, got, *events, calls)
		}
	}
}

// A pod that comes after its volume was made larger gets it in its new size, or not at all.
func TestDiskGrowsBeforeItsPodStarts(t *testing.T) {
	n := newDisk(t, stages, expands)
	n.pvcs.pvcs["data"].Status.Capacity = sized("1Gi")
	n.larger("2Gi", true)
	n.driver.Fault(csitest.Expand, csitest.Fault{Err: refusal(), Count: 1})
	if err := n.SetUp(t.Context(), diskPod("u")); err == nil {
		t.Error("no error")
	}
	n.driver.Forget()
	setUp(t, n.Volumes, diskPod("u"))
	if got := n.driver.Did(); got[len(got)-1] != csitest.Expand {
		t.Errorf("calls %q", got)
	}
	if got := (grown{}).after(growth{}, operation.GrowthUnable, refusal()); got != (grown{}) {
		t.Errorf("a driver that cannot expand, and a controller that did it all: %+v", got)
	}
}
