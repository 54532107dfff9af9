package placement

import (
	"context"
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
)

// noDrivers is a node without a driver: each call is one too many.
type noDrivers struct{ t *testing.T }

func (noDrivers) Usable(string) bool { return false }

func (n noDrivers) Prepare(context.Context, string, []dra.Claim) (map[types.UID]dra.Answer, error) {
	n.t.Error("a driver is called to prepare")
	return nil, errors.New("no driver")
}

func (n noDrivers) Unprepare(context.Context, string, []dra.Claim) (map[types.UID]error, error) {
	n.t.Error("a driver is called to unprepare")
	return nil, errors.New("no driver")
}

// TestOwnDriver: claims of the agent's own driver are prepared with no call, and their devices known.
func TestOwnDriver(t *testing.T) {
	for _, on := range []bool{true, false} {
		drivers := &ownDrivers{Drivers: noDrivers{t}, on: on}
		if got := drivers.usable(func() []string { return []string{"a"} })(); (len(got) == 2) != on {
			t.Errorf("usable are %q", got)
		}
		manager, err := claims.New(claims.Config{Dir: t.TempDir(), BootID: "boot", Drivers: drivers,
			Get: func(context.Context, string, string) (*resourcev1.ResourceClaim, error) {
				c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "c", UID: "uid-c"}}
				c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{UID: "p"}}
				c.Status.Allocation = &resourcev1.AllocationResult{}
				c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
					{Request: "r", Driver: claim.CPUDriver, Pool: "node", Device: claim.CPUDevice(1),
						ShareID: ptr.To(types.UID("share"))}}
				return c, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		drivers.manager = manager
		pod := podtest.New("p", podtest.Containers("main"), podtest.Claims("cpus=c"))
		if err := manager.Prepare(t.Context(), pod); (err == nil) != on {
			t.Fatalf("the driver is on: %v; %v", on, err)
		}
		if !on {
			continue
		}
		got := manager.Prepared(pod.UID)
		if len(got) != 1 || len(got[0].Devices) != 1 || got[0].Devices[0].Name != claim.CPUDevice(1) ||
			got[0].Devices[0].ShareID != "share" {
			t.Errorf("prepared are %+v", got)
		}
		c, device := Claims{Manager: manager}, claim.Device{Driver: claim.CPUDriver, Pool: "node", Name: claim.CPUDevice(1)}
		if id, prepared := c.cdi(pod.UID)("uid-c", device); id != "" || !prepared {
			t.Errorf("the device is prepared: %t, by CDI %q", prepared, id)
		}
		if _, prepared := c.cdi(pod.UID)("another", device); prepared {
			t.Error("a device of another claim is prepared")
		}
		of := []dra.Claim{{Namespace: "default", Name: "c", UID: "uid-c"}}
		if out, err := drivers.Unprepare(t.Context(), claim.CPUDriver, of); err != nil || len(out) != 1 ||
			out["uid-c"] != nil {
			t.Errorf("unprepared: %v, %v", out, err)
		}
	}
}

// A node that is in no cluster has no resource claims.
func TestNoClaims(t *testing.T) {
	var none Claims
	if _, prepared := none.cdi("p")("c", claim.Device{}); none.Admission() != nil || none.Holds("p") || prepared ||
		none.recovered() != "" {
		t.Error("there are claims")
	}
}

// TestDriverCPUs: the node tells of pods that have CPUs from before which drivers hand out now.
func TestDriverCPUs(t *testing.T) {
	state := allocation.State{Pods: map[types.UID]allocation.Pod{
		"old": {UID: "old", Name: "old", Containers: map[string]allocation.Container{
			"main": {allocation.CPUs(cpuset.New(1, 2))}}},
		"apart": {UID: "apart", Name: "apart", Containers: map[string]allocation.Container{
			"main": {allocation.CPUs(cpuset.New(3))}}},
	}}
	for flag, want := range map[string]int{"--dra-cpus=2": 1, "--dra-cpus=": 0, "--cpu-manager-policy=none": 0} {
		identity, err := node.Identify(configured(t, "--cpu-manager-policy=static", "--reserved-cpus=0", flag))
		if err != nil {
			t.Fatal(err)
		}
		var events told
		tellDriverCPUs(t.Context(), node.Node{Identity: identity, Events: &events}, store.Fixed(state))
		if len(events.of) != want || want > 0 && !strings.Contains(events.of[0], "pod /old has them") {
			t.Errorf("%s: events are %q", flag, events.of)
		}
	}
}
