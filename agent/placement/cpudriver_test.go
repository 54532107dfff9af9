package placement

import (
	"context"
	"errors"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

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
		of := []dra.Claim{{Namespace: "default", Name: "c", UID: "uid-c"}}
		if out, err := drivers.Unprepare(t.Context(), claim.CPUDriver, of); err != nil || len(out) != 1 ||
			out["uid-c"] != nil {
			t.Errorf("unprepared: %v, %v", out, err)
		}
	}
}
