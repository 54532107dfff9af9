package allocation

import (
	"testing"

	"github.com/numalet/numalet/topology"
)

// What starts first goes where the largest of what follows has room, if in the order of the starts
// the pod had no place. Node 0 has CPUs 0-3 and 8-11, of which 0 is reserved, gpu-0 and gpu-1.
func TestPlanLooksAhead(t *testing.T) {
	others := func(cpus, gpu string) func(*View) {
		return func(v *View) { v.Taken = HoldingsOf(own(cpus, gpu, true)) }
	}
	const nowhere = "TopologyAffinityError: Resources cannot be allocated with Topology locality"
	for name, test := range map[string]struct {
		policy topology.Policy
		scope  topology.Scope
		change func(*View)
		pod    []string
		want   string
	}{
		"CPUs: the init container goes with the app": {
			policy: topology.SingleNUMANode, change: others("1-3", "gpu-0"),
			pod:  []string{"init! cpu=1", "main cpu=6"},
			want: "init: cpus 4; main: cpus 4-6,12-14",
		},
		"restricted": {
			policy: topology.Restricted, change: others("1-3", "gpu-0"),
			pod:  []string{"init! cpu=1", "main cpu=6"},
			want: "init: cpus 4; main: cpus 4-6,12-14",
		},
		"where the order of starts leads to a place it is the kubelet's": {
			policy: topology.BestEffort, change: others("1-3", "gpu-0"),
			pod:  []string{"init! cpu=1", "main cpu=6"},
			want: "init: cpus 8; main: cpus 4-5,8-9,12-13",
		},
		"devices": {
			policy: topology.SingleNUMANode, change: others("1", "gpu-0"),
			pod:  []string{"init! gpu=1", "main gpu=2"},
			want: "init: gpu-2; main: gpu-2,gpu-3",
		},
		"one init container after the other": {
			policy: topology.SingleNUMANode, change: others("1-3", "gpu-0"),
			pod:  []string{"a! cpu=1", "b! cpu=2 gpu=1", "main cpu=6 gpu=2"},
			want: "a: cpus 4; b: cpus 4,12 gpu-2; main: cpus 4-6,12-14 gpu-2,gpu-3",
		},
		"an init container that asks for more": {
			policy: topology.SingleNUMANode, change: others("1-3", "gpu-0"),
			pod:  []string{"a! cpu=1", "b! cpu=7", "main cpu=6"},
			want: "a: cpus 4; b: cpus 4-7,12-14; main: cpus 4-6,12-14",
		},
		"what it had is left behind": { // it asks for a GPU, and only node 0 has one
			policy: topology.SingleNUMANode,
			change: func(v *View) {
				v.Taken = HoldingsOf(own("1-3", "gpu-2", true))
				v.Inventory.Resources["example.com/gpu"] = gpus(0, 0, 1)
			},
			pod:  []string{"init! cpu=1 gpu=1", "main cpu=6"},
			want: "init: cpus 8 gpu-0; main: cpus 4-6,12-14",
		},
		"beside a sidecar that starts before": {
			policy: topology.SingleNUMANode, change: others("1-2", "gpu-0"),
			pod:  []string{"side~ cpu=1", "init! cpu=1", "main cpu=7"},
			want: "init: cpus 7; main: cpus 4-7,12-14; side: cpus 8",
		},
		"the largest first": {
			policy: topology.SingleNUMANode, change: others("4-5", "gpu-0"),
			pod:  []string{"side~ cpu=1", "main cpu=7"},
			want: "main: cpus 1-3,8-11; side: cpus 12",
		},
		"no place for the app, whatever starts before": {
			policy: topology.SingleNUMANode, change: others("1-4", "gpu-0"),
			pod: []string{"init! cpu=1", "main cpu=8"}, want: nowhere,
		},
		"no place for the init container": {
			policy: topology.SingleNUMANode, change: others("1-4", "gpu-0"),
			pod: []string{"init! cpu=8", "main cpu=6"}, want: nowhere,
		},
		"memory: of an empty machine": { // 15 GiB, 7 of them on node 0
			policy: topology.BestEffort,
			change: func(v *View) { *v = withMemory(t, *v, 10, 2) },
			pod:    []string{"init! cpu=1500m memory=2Gi", "main cpu=1500m memory=12Gi"},
			want:   "init: 0 memory on 0-1; main: 12Gi memory on 0-1",
		},
		"memory without a policy": {
			policy: topology.None,
			change: func(v *View) { *v = withMemory(t, *v, 10, 2) },
			pod:    []string{"init! cpu=1500m memory=2Gi", "main cpu=1500m memory=12Gi"},
			want:   "init: 0 memory on 0-1; main: 12Gi memory on 0-1",
		},
		"memory: an init container that the policy wants on one node": {
			policy: topology.Restricted,
			change: func(v *View) { *v = withMemory(t, *v, 10, 2) },
			pod:    []string{"init! cpu=1500m memory=2Gi", "main cpu=1500m memory=12Gi"},
			want:   "init: 0 memory on 0; main: 12Gi memory on 0-1",
		},
		"memory: more than the app has": {
			policy: topology.SingleNUMANode,
			change: func(v *View) {
				*v = withMemory(t, *v, 10, 2)
				v.Taken = HoldingsOf(holds("other", "0 4Gi"))
			},
			pod: []string{"a! cpu=1 memory=1Gi", "b! cpu=1 memory=6Gi", "c! cpu=1 memory=7Gi",
				"main cpu=1 memory=4Gi"},
			want: "a: cpus 4 0 memory on 1; b: cpus 4 0 memory on 1; c: cpus 4 3Gi memory on 1; " +
				"main: cpus 4 4Gi memory on 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := rig(t, test.policy, test.scope)
			if test.change != nil {
				test.change(&v)
			}
			plan, err := v.Plan(podOfContainers(test.pod...), nil)
			if got := story(plan, err); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if err == nil {
				again := v
				again.Own = plan.Pod
				if got := story(again.Plan(podOfContainers(test.pod...), nil)); got != test.want {
					t.Errorf("planned again around what it has: %s", got)
				}
			}
		})
	}
}
