package devices

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
)

// TestClaimed: devices that claims hand out are listed and counted as those of plugins: by driver, with who has them,
// where they are and how they are. Partitions count as their device, and only those that a claim has are listed.
func TestClaimed(t *testing.T) {
	gpu := func(name string, node int, parent string) claim.Device {
		return claim.Device{Driver: "gpu.c", Pool: "n", Name: name, Place: claim.Place{
			Nodes: topology.NewNodeSet(topology.NodeID(node)), UUID: "U-" + name, Parent: parent}}
	}
	nic := claim.Device{Driver: "nic.c", Pool: "n", Name: "0"}
	cpus := claim.Device{Driver: claim.CPUDriver, Pool: "n", Name: "cpus"}
	holds := func(d ...claim.Device) allocation.Container {
		return allocation.Container{allocation.Claims{{Name: "c", UID: "1", Devices: d}}}
	}
	c := claimed{
		published: []claim.Device{gpu("0", 0, ""), gpu("0-half", 0, "U-0"), gpu("0-rest", 0, "U-0"), gpu("1", 1, ""),
			gpu("2", 1, ""), gpu("3", 1, ""), nic, cpus},
		drivers: []dra.Driver{{Name: "gpu.c", Instances: []dra.Instance{{HealthService: "v1"}}},
			{Name: "nic.c", Instances: []dra.Instance{{}}}},
		state: allocation.State{Pods: map[types.UID]allocation.Pod{
			"u": {Namespace: "a", Name: "p", Containers: map[string]allocation.Container{
				"main": holds(gpu("0-half", 0, "U-0"), gpu("1", 1, "")), "side": holds(gpu("1", 1, ""), gpu("gone", 1, ""))}},
		}},
		health: func(d claim.Device) (v1.ResourceHealthStatus, string) {
			if d.Name == "2" {
				return v1.ResourceHealthStatusUnhealthy, "hot"
			}
			return v1.ResourceHealthStatusHealthy, ""
		},
	}
	var got []string
	rows := c.rows()
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s %s %s%s @%s %v %v %t", r.Resource, r.ID, r.Health, r.Reason, r.Nodes, r.HeldBy,
			r.Parts, r.ByClaims))
	}
	want := []string{
		"dra.cpu n/cpus Unknown @ [] [] true",
		"gpu.c n/0 Healthy @0 [] [n/0-half] true",
		"gpu.c n/0-half Healthy @0 [a/p/main] [] true",
		"gpu.c n/1 Healthy @1 [a/p/main a/p/side] [] true",
		"gpu.c n/2 Unhealthyhot @1 [] [] true",
		"gpu.c n/3 Healthy @1 [] [] true",
		"gpu.c n/gone Healthy @1 [a/p/side] [] true",
		"nic.c n/0 NotReported @ [] [] true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	var supplies []string
	for _, s := range Supplies(rows, topology.NewNodeSet(0, 1)) {
		supplies = append(supplies, s.String())
	}
	want = []string{"gpu.c: 1 of 4 (0 of 1 on node 0, 1 of 3 on node 1); 1 more not healthy",
		"nic.c: 1 of 1 (1 of 1 on no node in particular)"}
	if !slices.Equal(supplies, want) {
		t.Errorf("supplies %q, want %q", supplies, want)
	}
}
