package allocation

import (
	"slices"
	"testing"

	"github.com/numalet/numalet/topology"
)

// Of two nodes that both have room, the strategy says which: of the CPUs that are left and of the
// devices, as parts of what the emptier node has.
func TestStrategies(t *testing.T) {
	for _, c := range []struct {
		strategy topology.Strategy
		taken    string // by a pod before
		want     string
	}{
		{topology.LowestNodes, "", "main: cpus 1,9"},
		{topology.Packed, "", "main: cpus 1,9"}, // node 0 lacks the reserved CPU
		{topology.Spread, "", "main: cpus 4,12"},
		{topology.LowestNodes, "main cpu=4 gpu=1", "main: cpus 3,11"},
		{topology.Packed, "main cpu=4 gpu=1", "main: cpus 3,11"},
		{topology.Spread, "main cpu=4 gpu=1", "main: cpus 4,12"},
	} {
		v := rig(t, topology.SingleNUMANode, topology.ContainerScope)
		if c.taken != "" {
			before := rig(t, topology.SingleNUMANode, topology.ContainerScope)
			plan, err := before.Plan(podOfContainers(c.taken), nil)
			if err != nil {
				t.Fatal(err)
			}
			v.Taken = HoldingsOf(plan.Pod)
		}
		v.Strategy = c.strategy
		if got := story(v.Plan(podOfContainers("main cpu=2"), nil)); got != c.want {
			t.Errorf("%s after %q: %s, want %s", c.strategy, c.taken, got, c.want)
		}
	}
}

// Small pods that are packed leave a whole node to a large one; spread, they do not.
func TestPackedLeavesNodesWhole(t *testing.T) {
	admits := func(s topology.Strategy) bool {
		v := rig(t, topology.SingleNUMANode, topology.ContainerScope)
		v.Strategy = s
		var pods []Pod
		for range 3 {
			plan, err := v.Plan(podOfContainers("main cpu=2"), nil)
			if err != nil {
				t.Fatal(err)
			}
			pods = append(pods, plan.Pod)
			v.Taken = HoldingsOf(slices.Clone(pods)...)
		}
		_, err := v.Plan(podOfContainers("main cpu=8"), nil)
		return err == nil
	}
	if !admits(topology.Packed) {
		t.Error("packed: the large pod has no place")
	}
	if admits(topology.Spread) {
		t.Error("spread: the large pod has a place, which the test did not expect")
	}
}
