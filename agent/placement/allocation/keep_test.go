package allocation

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// had is what a container held: CPUs, and a device that its plugin has answered for.
func had(t *testing.T, cpus string, gpus ...string) Container {
	t.Helper()
	set, err := cpuset.Parse(cpus)
	if err != nil {
		t.Fatal(err)
	}
	c := Container{}.With(CPUs(set))
	if len(gpus) > 0 {
		d := DeviceSet{Resource: "example.com/gpu", IDs: gpus, Answer: []byte{}}
		for _, id := range gpus {
			node := topology.NodeID(0)
			if id > "gpu-1" {
				node = 1
			}
			d.Nodes = append(d.Nodes, topology.NewNodeSet(node))
		}
		c = c.With(Devices{d})
	}
	return c
}

// TestKeepsWhatIsStillValid: a pod of which nothing runs, and of whose assignment some is not valid
// any more, keeps the rest as far as the topology policy lets it.
func TestKeepsWhatIsStillValid(t *testing.T) {
	owning := func(containers map[string]Container) Pod {
		return Pod{UID: "uid", Containers: containers}
	}
	main := func(cpus string, gpus ...string) Pod {
		return owning(map[string]Container{"main": had(t, cpus, gpus...)})
	}
	taking := func(cpus string, gpus ...string) func(*View) {
		return func(v *View) {
			v.Taken = HoldingsOf(Pod{
				UID: "other", Containers: map[string]Container{"main": had(t, cpus, gpus...)},
			})
		}
	}
	pluginAway := func(v *View) {
		v.Inventory.Resources["example.com/gpu"] = devicemanager.Resource{Name: "example.com/gpu"}
	}
	const keepsGPU3 = "container main keeps example.com/gpu gpu-3; no longer valid, or not as " +
		"requested: CPUs 5,13"
	for name, test := range map[string]struct {
		policy topology.Policy
		scope  topology.Scope
		own    Pod
		change func(*View)
		pod    *v1.Pod
		want   string
		why    string // part of what the record says; "": nothing is said
	}{
		"its CPUs are taken, the device stays and the CPUs go to its node": {
			policy: topology.SingleNUMANode, own: main("5,13", "gpu-3"), change: taking("5,13"),
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 4,12 gpu-3 (kept)", why: keepsGPU3,
		},
		"the same in pod scope": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			own: main("5,13", "gpu-3"), change: taking("5,13"),
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 4,12 gpu-3 (kept)", why: keepsGPU3,
		},
		"its plugin is away, and is not needed": {
			policy: topology.Restricted, own: main("5,13", "gpu-3"),
			change: func(v *View) { taking("5,13")(v); pluginAway(v) },
			pod:    podOfContainers("main cpu=2 gpu=1"),
			want:   "main: cpus 4,12 gpu-3 (kept)", why: keepsGPU3,
		},
		"policy static came, it has no CPUs yet": {
			policy: topology.SingleNUMANode, own: main("", "gpu-3"),
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 4,12 gpu-3 (kept)",
			why: "container main keeps example.com/gpu gpu-3; no longer valid, or not as " +
				"requested: nothing",
		},
		"the device is gone after a reboot, the CPUs stay and the new one goes to them": {
			policy: topology.SingleNUMANode, own: own("5,13", "gpu-9", false),
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 5,13 gpu-2",
			why: "container main keeps CPUs 5,13; no longer valid, or not as requested: " +
				"example.com/gpu gpu-9",
		},
		"the node of the device has no CPUs left: all moves": {
			policy: topology.SingleNUMANode, own: main("5,13", "gpu-3"),
			change: taking("4-7,12-15"), pod: podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 1,9 gpu-0",
			why: "no container keeps only a part of what it had: around what is still valid " +
				"there is no place: Resources cannot be allocated with Topology locality",
		},
		"which best effort need not do": {
			policy: topology.BestEffort, own: main("5,13", "gpu-3"), change: taking("4-7,12-15"),
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 1,9 gpu-3 (kept)", why: keepsGPU3,
		},
		"devices apart do not bind a policy that wants them together": {
			policy: topology.SingleNUMANode, own: main("3,5", "gpu-1", "gpu-2"),
			change: taking("3"), pod: podOfContainers("main cpu=2 gpu=2"),
			want: "main: cpus 1,9 gpu-0,gpu-1", why: "no container keeps only a part",
		},
		"one container moves, the other keeps all": {
			policy: topology.SingleNUMANode,
			own: owning(map[string]Container{
				"a": had(t, "1,9", "gpu-0"), "b": had(t, "2,10", "gpu-1"),
			}),
			change: taking("1,9"), pod: podOfContainers("a cpu=2 gpu=1", "b cpu=2 gpu=1"),
			want: "a: cpus 3,11 gpu-0 (kept); b: cpus 2,10 gpu-1 (kept)",
			why: "container a keeps example.com/gpu gpu-0; no longer valid, or not as " +
				"requested: CPUs 1,9",
		},
		"the same in pod scope, on the node of what stays": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			own: owning(map[string]Container{
				"a": had(t, "4,12", "gpu-2"), "b": had(t, "5,13", "gpu-3"),
			}),
			change: taking("4,12"), pod: podOfContainers("a cpu=2 gpu=1", "b cpu=2 gpu=1"),
			want: "a: cpus 6,14 gpu-2 (kept); b: cpus 5,13 gpu-3 (kept)",
			why: "container a keeps example.com/gpu gpu-2; no longer valid, or not as " +
				"requested: CPUs 4,12",
		},
		"what an init container kept and is not healthy any more is for nobody after it": {
			policy: topology.SingleNUMANode,
			own:    owning(map[string]Container{"first": had(t, "", "gpu-0")}),
			change: func(v *View) {
				v.Inventory.Resources["example.com/gpu"].Devices[0].Healthy = false
			},
			pod:  podOfContainers("first! gpu=1", "main gpu=2"),
			want: "first: gpu-0 (kept); main: gpu-2,gpu-3",
		},
		"a container that cannot keep a part does not cost the other what it has": {
			policy: topology.SingleNUMANode,
			own: owning(map[string]Container{
				"a": had(t, "1,9", "gpu-0"), "b": had(t, "5,13", "gpu-3"),
			}),
			change: taking("1-3,8-11"), pod: podOfContainers("a cpu=2 gpu=1", "b cpu=2 gpu=1"),
			want: "a: cpus 4,12 gpu-2; b: cpus 5,13 gpu-3 (kept)",
			why: "no container keeps only a part of what it had: around what is still valid " +
				"there is no place",
		},
		"nor in pod scope, where both have to be on one node: both move": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			own: owning(map[string]Container{
				"a": had(t, "1,9", "gpu-0"), "b": had(t, "2,10", "gpu-1"),
			}),
			change: taking("1,3,8-9,11"), pod: podOfContainers("a cpu=2 gpu=1", "b cpu=2 gpu=1"),
			want: "a: cpus 4,12 gpu-2; b: cpus 5,13 gpu-3",
			why: "nothing is kept of what the pod had: around what is still valid there is no " +
				"place",
		},
		"an init container moves, the main one keeps what it has": {
			policy: topology.SingleNUMANode,
			own: owning(map[string]Container{
				"init": had(t, "1,9"), "main": had(t, "2,10", "gpu-1"),
			}),
			change: taking("1,9"), pod: podOfContainers("init! cpu=2", "main cpu=2 gpu=1"),
			want: "init: cpus 2,10; main: cpus 2,10 gpu-1 (kept)",
		},
		"all is valid": {
			policy: topology.SingleNUMANode, own: main("5,13", "gpu-3"),
			pod: podOfContainers("main cpu=2 gpu=1"), want: "main: cpus 5,13 gpu-3 (kept)",
		},
		"another container wants nothing: no place is looked for that the pod does not need": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			own: main("3,5", "gpu-1", "gpu-2"), pod: podOfContainers("main cpu=2 gpu=2", "idle cpu=100m"),
			want: "idle:; main: cpus 3,5 gpu-1,gpu-2 (kept)",
		},
		"there is no place at all": {
			policy: topology.SingleNUMANode, own: main("5,13", "gpu-3"), change: taking("1-15"),
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "TopologyAffinityError: Resources cannot be allocated with Topology locality",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := rig(t, test.policy, test.scope)
			v.Own = test.own
			if test.change != nil {
				test.change(&v)
			}
			plan, err := v.Plan(test.pod, nil)
			if got := story(plan, err); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			said := strings.Join(plan.Kept, "\n")
			if err == nil && (!strings.Contains(said, test.why) || test.why == "" && said != "" &&
				!strings.HasPrefix(said, "container init keeps nothing")) {
				t.Errorf("said  %q\nwant %q", said, test.why)
			}
			if both := HoldingsOf(plan.Pod).CPUs().Intersection(v.Taken.CPUs()); !both.IsEmpty() {
				t.Errorf("CPUs %s are another pod's", both)
			}
		})
	}
}

// TestMemoryIsKeptOrMovesAlone: blocks of memory are one of the parts.
func TestMemoryIsKeptOrMovesAlone(t *testing.T) {
	own := holds("uid", "1 2Gi")
	own.Containers["main"] = own.Containers["main"].With(CPUs(cpuset.New(5, 13)))
	for name, test := range map[string]struct{ taken, want string }{
		"CPUs move to the memory": {"5,13", "main: cpus 4,12 2Gi memory on 1"},
		"both have to move":       {"4-7,12-15", "main: cpus 1,9 2Gi memory on 0"},
	} {
		t.Run(name, func(t *testing.T) {
			v := withMemory(t, rig(t, topology.SingleNUMANode, topology.ContainerScope), 8, 0)
			v.Own = own
			set, err := cpuset.Parse(test.taken)
			if err != nil {
				t.Fatal(err)
			}
			v.Taken = HoldingsOf(Pod{
				UID: "other", Containers: map[string]Container{"main": {CPUs(set)}},
			})
			got := story(v.Plan(podOfContainers("main cpu=2 memory=2Gi"), nil))
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestWhatRunsIsNotMoved: of a pod that runs only containers that have nothing are placed, and
// nothing that the others have is given to them.
func TestWhatRunsIsNotMoved(t *testing.T) {
	v := rig(t, topology.SingleNUMANode, topology.ContainerScope)
	v.Keep = KeepAll
	v.Own = Pod{UID: "uid", Containers: map[string]Container{
		"side": had(t, "1", "gpu-9"), // fewer CPUs than requested, and a device that is gone
		"last": had(t, "2,10", "gpu-0"),
	}}
	pod := podOfContainers("side~ cpu=2 gpu=1", "main cpu=2 gpu=1", "last cpu=2 gpu=1")
	want := "last: cpus 2,10 gpu-0 (kept); main: cpus 3,11 gpu-1; side: cpus 1 gpu-9 (kept)"
	if got := story(v.Plan(pod, nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
