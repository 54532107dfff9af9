package resources

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// TestCPUsOfDrivers: a container whose CPUs a driver hands out runs on these, or on what the driver
// made of all that it has; it is moved only if it runs on others.
func TestCPUsOfDrivers(t *testing.T) {
	m := topologytest.Machine(t, []topology.Node{{ID: 0}}, 8)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err == nil {
		static, err = static.Lending(cpuset.New(4, 5, 6, 7))
	}
	if err != nil {
		t.Fatal(err)
	}
	by := func(ids string) allocation.Container {
		return allocation.Container{}.With(allocation.Claims{{Name: "c", UID: "u", Devices: []claim.Device{
			{Driver: "dra.cpu", Place: claim.Place{CPUs: ids, Has: claim.Amount{CPUs: 2}}}}}})
	}
	for name, c := range map[string]struct {
		held      allocation.Container
		want      string
		fine, bad []string // what the container may have, and what not
	}{
		"named":   {by("4-5"), "4-5", []string{"4-5"}, []string{"4", "4-7", "0-3", ""}},
		"a group": {by(""), "4-7", []string{"4-7", "6", "5-6"}, []string{"0-3", "3-4", "0-7", ""}},
		"none":    {nil, "0-3", []string{"0-3"}, []string{"4", "0-7"}},
	} {
		pods := map[types.UID]allocation.Pod{"p": {UID: "p",
			Containers: map[string]allocation.Container{"c": c.held}}}
		n := newNode(Settings{}, machine.Hardware{Machine: m, CPUs: static}, allocation.State{Pods: pods})
		at := n.place("p", "c", nil, nil)
		if at.cpus.text != c.want || at.exclusive {
			t.Errorf("%s: created on %s, want %s", name, at.cpus.text, c.want)
		}
		for i, has := range append(c.fine, c.bad...) {
			one := live{at: at, record: &record{}, kernel: inKernel{cpus: &has},
				Container: cri.Container{Name: "c"}}
			if gaps := one.drift(&n); (len(gaps) == 0) != (i < len(c.fine)) {
				t.Errorf("%s: with %q: %v", name, has, gaps)
			}
		}
	}
}
