package allocation

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
	"github.com/numalet/numalet/topology/topologytest"
)

// poolRig is the rig with 8 GiB on each node, and with the gate.
func poolRig(t *testing.T, scope topology.Scope) View {
	t.Helper()
	nodes := []topology.Node{{ID: 0, MemoryBytes: 8 << 30}, {ID: 1, MemoryBytes: 8 << 30}}
	m := topologytest.Machine(t, nodes, 16,
		func(c *topology.CPU) {
			c.Core %= 8
			node := int(c.Core) / 4
			c.Node, c.Socket, c.L3 = topology.NodeID(node), topology.SocketID(node), topology.L3ID(node*4)
		})
	v := rig(t, topology.SingleNUMANode, scope)
	var err error
	if v.CPUs, err = cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{}); err != nil {
		t.Fatal(err)
	}
	if v.Memory, err = memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 1 << 30}}); err != nil {
		t.Fatal(err)
	}
	v.Machine, v.PodLevel = m, true
	return v
}

// podLevel returns a pod with pod-level resources and these containers.
func podLevel(resources string, containers ...string) *v1.Pod {
	return podtest.New("pod", podtest.UID("uid"), podtest.Containers(containers...),
		podtest.Resources(resources))
}

// TestPool: a pod with pod-level resources has a pool in pod scope, whose parts its containers get or
// share; in container scope its containers get what they qualify for.
func TestPool(t *testing.T) {
	const six = "cpu=6 memory=4Gi"
	for name, test := range map[string]struct {
		scope  topology.Scope
		change func(*View)
		pod    *v1.Pod
		want   string
	}{
		"all share the pool": {
			pod: podLevel(six, "a", "b cpu=1"),
			want: ": cpus 1-3,9-11 4Gi memory on 0; a: cpus 1-3,9-11 4Gi memory on 0; " +
				"b: cpus 1-3,9-11 4Gi memory on 0",
		},
		"a slice, and the rest is shared": {
			pod: podLevel(six, "a cpu=2 memory=1Gi", "side~ cpu=500m", "b"),
			want: ": cpus 1-3,9-11 4Gi memory on 0; a: cpus 1,9 1Gi memory on 0; b: cpus 2-3,10-11 3Gi memory on 0; " +
				"side: cpus 2-3,10-11 3Gi memory on 0",
		},
		"slices leave CPUs idle": {
			pod:  podLevel(six, "a cpu=2 memory=1Gi", "b cpu=1 memory=1Gi"),
			want: ": cpus 1-3,9-11 4Gi memory on 0; a: cpus 1,9 1Gi memory on 0; b: cpus 2 1Gi memory on 0",
		},
		"a fraction of CPUs is shared, its memory is not": {
			pod: podLevel(six, "a cpu=1500m memory=1Gi", "b"),
			want: ": cpus 1-3,9-11 4Gi memory on 0; a: cpus 1-3,9-11 1Gi memory on 0; " +
				"b: cpus 1-3,9-11 3Gi memory on 0",
		},
		"init containers use what later ones get": {
			pod: podLevel(six, "i! cpu=5 memory=4Gi", "j!", "side~ cpu=2 memory=1Gi", "k!", "a cpu=2 memory=1Gi", "b"),
			want: ": cpus 1-3,9-11 4Gi memory on 0; a: cpus 2,10 1Gi memory on 0; b: cpus 3,11 2Gi memory on 0; " +
				"i: cpus 1-3,9-10 4Gi memory on 0; j: cpus 1-3,9-11 4Gi memory on 0; " +
				"k: cpus 2-3,10-11 3Gi memory on 0; side: cpus 1,9 1Gi memory on 0",
		},
		"devices are near the pool": {
			change: func(v *View) {
				v.Taken = HoldingsOf(Pod{UID: "o", Containers: map[string]Container{
					"x": Container{}.With(Devices{{Resource: "example.com/gpu", IDs: []string{"gpu-0", "gpu-1"}}})}})
			},
			pod: podLevel(six, "a gpu=1", "b"),
			want: ": cpus 4-6,12-14 4Gi memory on 1; a: cpus 4-6,12-14 4Gi memory on 1 gpu-2; " +
				"b: cpus 4-6,12-14 4Gi memory on 1",
		},
		"nothing is left": {
			pod: podLevel("cpu=3 memory=4Gi", "a cpu=2 memory=1Gi", "b cpu=1 memory=1Gi", "c"),
			want: "EmptyPodSharedPoolError: pod rejected, sum of exclusive container cpu requests equals " +
				"pod budget, leaving no cpus for shared containers",
		},
		"no memory is left": {
			pod: podLevel("cpu=3 memory=2Gi", "a cpu=1 memory=1Gi", "b cpu=1 memory=1Gi", "c"),
			want: "EmptyPodSharedPoolError: pod rejected, sum of exclusive container memory requests equals " +
				"pod budget, leaving no memory for shared containers",
		},
		"nothing is left for an init container": {
			pod: podLevel("cpu=2 memory=4Gi", "side~ cpu=2 memory=1Gi", "i!", "a cpu=1 memory=1Gi"),
			want: "EmptyPodSharedPoolError: pod rejected, pod has shared init containers but no cpus available for " +
				"them",
		},
		"too many": {
			pod:  podLevel("cpu=9 memory=1Gi", "a"),
			want: "TopologyAffinityError: Resources cannot be allocated with Topology locality",
		},
		"a fraction of a CPU: only memory": {
			pod:  podLevel("cpu=2500m memory=1Gi", "a cpu=1 memory=512Mi", "b"),
			want: ": 1Gi memory on 0; a: 512Mi memory on 0; b: 512Mi memory on 0",
		},
		"not guaranteed": {pod: podLevel("cpu=2..3 memory=1Gi", "a cpu=1 memory=1Gi"), want: "a:"},
		"without the gate": {
			change: func(v *View) { v.PodLevel = false }, pod: podLevel(six, "a cpu=2 memory=1Gi"), want: "a:"},
		"container scope": {
			scope: topology.ContainerScope, pod: podLevel(six, "a cpu=2 memory=1Gi", "b cpu=1", "c"),
			want: "a: cpus 1,9 1Gi memory on 0; b:; c:",
		},
		"policy none": {
			change: func(v *View) { v.Policy = topology.None }, pod: podLevel(six, "a cpu=2 memory=1Gi", "b"),
			want: "a: cpus 1,9 1Gi memory on 0; b:",
		},
		"whole cores are split within the pool": {
			change: func(v *View) {
				v.CPUs, _ = cpumanager.NewStatic(v.Machine, cpuset.New(0), cpumanager.Options{FullPCPUsOnly: true})
			},
			pod:  podLevel(six, "a cpu=1 memory=1Gi", "b"),
			want: ": cpus 1-3,9-11 4Gi memory on 0; a: cpus 1 1Gi memory on 0; b: cpus 2-3,9-11 3Gi memory on 0",
		},
		"the pool is of whole cores": {
			change: func(v *View) { v.WholeCores = true },
			pod:    podLevel("cpu=3 memory=1Gi", "a cpu=1 memory=512Mi", "b"),
			want:   ": cpus 1-2,9-10 1Gi memory on 0; a: cpus 1 512Mi memory on 0; b: cpus 2,9-10 512Mi memory on 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := poolRig(t, topology.PodScope)
			if test.scope != "" {
				v.Scope = test.scope
			}
			if test.change != nil {
				test.change(&v)
			}
			if got := story(v.Plan(test.pod, nil)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestPoolIsKept: a pod keeps its pool as long as that is valid, and its parts with it.
func TestPoolIsKept(t *testing.T) {
	v := poolRig(t, topology.PodScope)
	pod := podLevel("cpu=6 memory=4Gi", "i!", "a cpu=2 memory=1Gi gpu=1", "b")
	first, err := v.Plan(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.Own = first.Pod
	for _, keep := range []Keeping{KeepParts, KeepWhole, KeepAll, KeepResized} {
		v.Keep, v.Before = keep, pod
		if again, err := v.Plan(pod, nil); story(again, err) != story(first, nil) || len(again.Kept) > 0 {
			t.Errorf("%d: %s, had %s, %q", keep, story(again, err), story(first, nil), again.Kept)
		}
	}
	if lacks := v.Lacks(pod); len(lacks) > 0 {
		t.Errorf("it lacks %q", lacks)
	}
	v.Own, v.Keep = Pod{}, KeepParts
	const all = "[6 exclusive CPUs of the pod memory of the pod on nodes of its own 2 exclusive CPUs of " +
		"container a memory of container a on nodes of its own 1 example.com/gpu of container a]"
	if got := fmt.Sprint(v.Lacks(pod)); got != all || !v.Needs(pod) {
		t.Errorf("without anything it lacks %s", got)
	}

	// What runs goes on as it is, whatever the rules are by now.
	v.Own, v.Keep = first.Pod, KeepAll
	for _, change := range []func(*View){
		func(v *View) { v.PodLevel = false }, func(v *View) { v.Scope = topology.ContainerScope },
	} {
		other := v
		change(&other)
		if again, err := other.Plan(pod, nil); story(again, err) != story(first, nil) {
			t.Errorf("%s, had %s", story(again, err), story(first, nil))
		}
	}

	// Another pod has a CPU of the pool by now.
	v.Keep = KeepParts
	v.Taken = HoldingsOf(Pod{UID: "o", Containers: map[string]Container{
		"x": Container{}.With(CPUs(cpuset.New(10, 11)))}})
	again, err := v.Plan(pod, nil)
	const want = ": cpus 4-6,12-14 4Gi memory on 1; a: cpus 4,12 1Gi memory on 1 gpu-2; " +
		"b: cpus 5-6,13-14 3Gi memory on 1; i: cpus 4-6,12-14 4Gi memory on 1"
	if got := story(again, err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestPoolCounts: the pool counts once, and a pod with one shares no CPUs of the node.
func TestPoolCounts(t *testing.T) {
	v := poolRig(t, topology.PodScope)
	pod := podLevel("cpu=6 memory=4Gi", "a cpu=2 memory=1Gi", "b", "c")
	plan, err := v.Plan(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := HoldingsOf(plan.Pod, plan.Pod)
	if blocks := all.Memory(); len(blocks) != 1 || blocks[0].Size != 4<<30 || all.CPUs().Size() != 6 {
		t.Errorf("%v, CPUs %s", blocks, all.CPUs())
	}
	if cpumanager.Shares(pod, v.Rules) || cpumanager.PodExclusive(pod, v.Rules) != 6 {
		t.Error("it is said to share CPUs of the node")
	}
	if plan.Pod.WhollyExclusive(pod) || !plan.Pod.SharesCPUs(pod, &pod.Spec.Containers[1]) ||
		plan.Pod.SharesCPUs(pod, &pod.Spec.Containers[0]) {
		t.Error("who shares within the pod?")
	}
}

// TestPoolProperty: parts are in the pool and apart, something is left to share, no two pods have the same,
// and a plan made again keeps everything.
func TestPoolProperty(t *testing.T) {
	rig := poolRig(t, topology.PodScope)
	rapid.Check(t, func(rt *rapid.T) {
		v, pods := rig, map[types.UID]Pod{}
		v.Policy = rapid.SampledFrom([]topology.Policy{topology.BestEffort, topology.Restricted,
			topology.SingleNUMANode}).Draw(rt, "policy")
		for i := range rapid.IntRange(1, 4).Draw(rt, "pods") {
			pod := somePooled(rt)
			pod.UID = types.UID(fmt.Sprint(i))
			v.Taken, v.Own = HoldingsOf(slices.Collect(maps.Values(pods))...), Pod{}
			plan, err := v.Plan(pod, nil)
			if err != nil {
				continue
			}
			isPooled(rt, v, pod, plan.Pod)
			v.Own = plan.Pod
			if again, err := v.Plan(pod, nil); story(again, err) != story(plan, nil) {
				rt.Fatalf("%s, had %s", story(again, err), story(plan, nil))
			}
			pods[pod.UID] = plan.Pod
		}
	})
}

// somePooled returns a pod with pod-level resources and up to five containers.
func somePooled(t *rapid.T) *v1.Pod {
	var containers []string
	for i := range rapid.IntRange(1, 5).Draw(t, "containers") {
		kind := rapid.SampledFrom([]string{"", "!", "~"}).Draw(t, "kind")
		if i == 0 {
			kind = ""
		}
		text := fmt.Sprintf("c%d%s", i, kind)
		switch rapid.IntRange(0, 2).Draw(t, "request") {
		case 0:
			text += fmt.Sprintf(" cpu=%d memory=%dMi", rapid.IntRange(1, 3).Draw(t, "cpus"),
				100*rapid.IntRange(1, 8).Draw(t, "memory"))
		case 1:
			text += " cpu=1500m..2 memory=100Mi"
		}
		containers = append(containers, text)
	}
	return podLevel(fmt.Sprintf("cpu=%d memory=%dMi", rapid.IntRange(1, 7).Draw(t, "cpus"),
		rapid.IntRange(500, 3000).Draw(t, "memory")), containers...)
}

// isPooled checks what a pod with a pool has.
func isPooled(t *rapid.T, v View, pod *v1.Pod, has Pod) {
	pool := has.Pool()
	if pool.CPUs().Size() != int(pod.Spec.Resources.Requests.Cpu().Value()) ||
		!pool.CPUs().Intersection(v.Taken.CPUs()).IsEmpty() {
		t.Fatalf("the pool is %s, others have %s", pool.CPUs(), v.Taken.CPUs())
	}
	exclusive, lasting := cpumanager.ExclusiveOf(pod, v.Rules), cpuset.New()
	for c, kind := range podspec.Containers(pod) {
		held, n := has.Containers[c.Name], exclusive(c)
		switch {
		case held.CPUs().IsEmpty() || !held.CPUs().IsSubsetOf(pool.CPUs()) || len(held.Memory()) == 0:
			t.Fatalf("%s has %v of %v", c.Name, held, pool)
		case n > 0 && held.CPUs().Size() != n:
			t.Fatalf("%s has %s, asked for %d", c.Name, held.CPUs(), n)
		case n > 0 && !held.CPUs().Intersection(lasting).IsEmpty():
			t.Fatalf("%s has %s, others %s", c.Name, held.CPUs(), lasting)
		case n > 0 && kind != podspec.Init:
			lasting = lasting.Union(held.CPUs())
		}
	}
	for c, kind := range podspec.Containers(pod) {
		held := has.Containers[c.Name].CPUs()
		rest := pool.CPUs().Difference(lasting)
		if kind != podspec.Init && exclusive(c) == 0 && !held.Equals(rest) {
			t.Fatalf("%s has %s, left are %s", c.Name, held, rest)
		}
	}
}

// TestPoolIsRequested: isolated CPUs of a pool do not count as requested, CPUs that pad it do.
func TestPoolIsRequested(t *testing.T) {
	v := isolating(t, poolRig(t, topology.PodScope), "2-3,10-11", topology.CPURules{})
	for _, test := range []struct {
		annotation string
		scope      topology.Scope
		want       string
	}{
		{"", topology.PodScope, "3"},
		{podspec.AnnotationIsolated, topology.PodScope, "0"},
		{podspec.AnnotationWholeCores, topology.PodScope, "4"},
		{podspec.AnnotationIsolated, topology.ContainerScope, "2"},
		{podspec.AnnotationWholeCores, topology.ContainerScope, "4"},
	} {
		pod := podLevel("cpu=3 memory=1Gi", "a cpu=1 memory=512Mi", "b")
		pod.Annotations = map[string]string{test.annotation: "true"}
		rules := v.Rules
		rules.Scope = test.scope
		if got := Requests(v.CPUs, pod, rules)[v1.ResourceCPU]; got.String() != test.want {
			t.Errorf("%q, scope %s: %s CPUs are requested, want %s", test.annotation, test.scope, got.String(),
				test.want)
		}
	}
}
