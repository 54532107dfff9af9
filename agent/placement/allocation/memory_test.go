package allocation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/topologytest"
)

const gib = 1 << 30

// withMemory gives the view's nodes so much memory each, in GiB, of which pages are huge and 1 is
// reserved on node 0.
func withMemory(t topologytest.Failer, v View, total, pages uint64) View {
	t.Helper()
	spec := v.Machine.Spec()
	for i := range spec.Nodes {
		spec.Nodes[i].MemoryBytes = total * gib
		spec.Nodes[i].HugePages = []topology.HugePages{{PageBytes: 2 << 20, Count: pages * 512}}
	}
	var err error
	v.Machine = topologytest.Of(t, spec)
	v.Memory, err = memory.New(v.Machine, memory.Amounts{0: {v1.ResourceMemory: gib}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// holds is a pod with blocks of memory: "0 3Gi" is 3 GiB on node 0.
func holds(uid string, blocks ...string) Pod {
	p := Pod{UID: types.UID(uid), Containers: map[string]Container{}}
	for i, text := range blocks {
		where, size, _ := strings.Cut(text, " ")
		nodes, err := topology.ParseNodeSet(where)
		if err != nil {
			panic(err)
		}
		bytes := resource.MustParse(size)
		name := fmt.Sprintf("c%d", i)
		if i == 0 {
			name = "main"
		}
		p.Containers[name] = Container{Memory{
			{Nodes: nodes, Resource: v1.ResourceMemory, Size: uint64(bytes.Value())},
		}}
	}
	return p
}

// Each node has 10 GiB, of which 2 are huge pages; 1 is reserved on node 0, which leaves 7 and 8.
func TestPlanMemory(t *testing.T) {
	holding := func(pods ...Pod) func(*View) { return func(v *View) { v.Taken = HoldingsOf(pods...) } }
	owns := func(p Pod) func(*View) { return func(v *View) { v.Own = p } }
	for name, test := range map[string]struct {
		policy topology.Policy
		scope  topology.Scope
		change func(*View)
		pod    []string
		want   string
	}{
		"the lowest node": {
			pod: []string{"main cpu=1500m memory=3Gi"}, want: "main: 3Gi memory on 0",
		},
		"beside what others hold": {
			pod: []string{"main cpu=1500m memory=5Gi"}, change: holding(holds("other", "0 3Gi")),
			want: "main: 5Gi memory on 1",
		},
		"listed twice is held once": {
			pod:    []string{"main cpu=1500m memory=4Gi"},
			change: holding(holds("other", "0 3Gi"), holds("other", "0 3Gi")),
			want:   "main: 4Gi memory on 0",
		},
		"a group of nodes": {
			pod: []string{"main cpu=1500m memory=9Gi"}, want: "main: 9Gi memory on 0-1",
		},
		"a group takes no node that is used alone": {
			pod: []string{"main cpu=1500m memory=9Gi"}, change: holding(holds("other", "0 1Gi")),
			want: "UnexpectedAdmissionError: Allocate failed due to " + memory.ErrNoRoom.Error() +
				", which is unexpected",
		},
		"huge pages beside memory": {
			pod:  []string{"main cpu=1500m memory=1Gi hugepages-2Mi=3Gi"},
			want: "main: 3Gi hugepages-2Mi on 0-1 1Gi memory on 0-1",
		},
		"where CPUs and devices are": {
			policy: topology.SingleNUMANode, pod: []string{"main cpu=2 gpu=1 memory=5Gi"},
			change: holding(holds("other", "0 3Gi")),
			want:   "main: cpus 4,12 5Gi memory on 1 gpu-2",
		},
		"nowhere with the devices": {
			policy: topology.SingleNUMANode, pod: []string{"main gpu=2 cpu=1500m memory=5Gi"},
			change: holding(holds("other", "0 3Gi"), own("", "gpu-3", true)),
			want:   "TopologyAffinityError: Resources cannot be allocated with Topology locality",
		},
		"best-effort goes where it must": {
			policy: topology.BestEffort, pod: []string{"main gpu=2 cpu=1500m memory=5Gi"},
			change: holding(holds("other", "0 3Gi"), own("", "gpu-3", true)),
			want:   "main: 5Gi memory on 1 gpu-0,gpu-2",
		},
		"a narrower hint is extended": {
			policy: topology.BestEffort, pod: []string{"main gpu=1 cpu=1500m memory=9Gi"},
			want: "main: 9Gi memory on 0-1 gpu-0",
		},
		"restricted takes no more nodes than needed": {
			policy: topology.Restricted, pod: []string{"main cpu=1500m memory=5Gi"},
			change: holding(holds("other", "0 3Gi"), holds("another", "1 4Gi")),
			want: "UnexpectedAdmissionError: Allocate failed due to " + memory.ErrGroups.Error() +
				", which is unexpected",
		},
		"containers one by one": {
			policy: topology.SingleNUMANode,
			pod:    []string{"a cpu=1500m memory=5Gi", "b cpu=1500m memory=5Gi"},
			want:   "a: 5Gi memory on 0; b: 5Gi memory on 1",
		},
		"a pod as a whole": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			pod:  []string{"a cpu=1500m memory=4Gi", "b cpu=1500m memory=4Gi"},
			want: "a: 4Gi memory on 1; b: 4Gi memory on 1",
		},
		"a pod as a whole does not fit": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			pod:  []string{"a cpu=1500m memory=5Gi", "b cpu=1500m memory=5Gi"},
			want: "TopologyAffinityError: Resources cannot be allocated with Topology locality",
		},
		"what init containers had is taken over": {
			pod: []string{"one! cpu=1500m memory=6Gi", "two! cpu=1500m memory=7Gi",
				"side~ cpu=1500m memory=2Gi", "main cpu=1500m memory=4Gi"},
			want: "main: 4Gi memory on 0; one: 0 memory on 0; side: 2Gi memory on 0; two: 1Gi " +
				"memory on 0",
		},
		"a sidecar keeps what it has": {
			pod: []string{"side~ cpu=1500m memory=4Gi", "one! cpu=1500m memory=4Gi",
				"main cpu=1500m memory=4Gi"},
			want: "main: 4Gi memory on 1; one: 0 memory on 1; side: 4Gi memory on 0",
		},
		"what it has is kept": {
			pod: []string{"main cpu=1500m memory=3Gi"}, change: owns(holds("uid", "1 3Gi")),
			want: "main: 3Gi memory on 1",
		},
		"what others have now is not": {
			pod: []string{"main cpu=1500m memory=3Gi"},
			change: func(v *View) {
				v.Own, v.Taken = holds("uid", "1 3Gi"), HoldingsOf(holds("a", "1 6Gi"))
			},
			want: "main: 3Gi memory on 0",
		},
		"what others have now in another group is not": {
			pod: []string{"main cpu=1500m memory=3Gi"},
			change: func(v *View) {
				v.Own, v.Taken = holds("uid", "0-1 3Gi"), HoldingsOf(holds("a", "1 1Gi"))
			},
			want: "main: 3Gi memory on 0",
		},
		"another size is placed anew": {
			pod: []string{"main cpu=1500m memory=4Gi"}, change: owns(holds("uid", "1 3Gi")),
			want: "main: 4Gi memory on 0",
		},
		"what an init container has left is kept": {
			pod: []string{"c1! cpu=1500m memory=5Gi", "main cpu=1500m memory=3Gi"},
			change: owns(Pod{UID: "uid", Containers: map[string]Container{
				"c1":   holds("", "1 2Gi").Containers["main"],
				"main": holds("", "1 3Gi").Containers["main"],
			}}),
			want: "c1: 2Gi memory on 1; main: 3Gi memory on 1",
		},
		"a node that is gone": {
			pod: []string{"main cpu=1500m memory=3Gi"}, change: owns(holds("uid", "5 3Gi")),
			want: "main: 3Gi memory on 0",
		},
		"blocks of a policy that is off stay": {
			pod: []string{"main cpu=1500m memory=3Gi"},
			change: func(v *View) {
				v.Own, v.Memory = holds("uid", "1 7Gi"), nil
			},
			want: "main: 7Gi memory on 1",
		},
		"nothing for burstable pods": {
			pod: []string{"main memory=3Gi", "more cpu=1 gpu=1"}, want: "main:; more: gpu-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.policy == "" {
				test.policy = topology.None
			}
			v := withMemory(t, rig(t, test.policy, test.scope), 10, 2)
			if test.change != nil {
				test.change(&v)
			}
			if got := story(v.Plan(podOfContainers(test.pod...), nil)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// Whatever comes, goes and comes back: no node's memory is promised twice, what is free is all less
// what is held, and a pod that plans again for what it holds changes nothing.
func TestMemoryIsPromisedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := someNode(t, rt)
		pods, specs := map[types.UID]Pod{}, map[types.UID]*v1.Pod{}
		for step := range rapid.IntRange(1, 25).Draw(rt, "steps") {
			if len(pods) > 0 && rapid.IntRange(0, 2).Draw(rt, "remove") == 0 {
				uid := rapid.SampledFrom(slices.Sorted(maps.Keys(pods))).Draw(rt, "removed")
				delete(pods, uid)
				continue
			}
			pod := podOfContainers(somePod(rt)...)
			pod.UID = types.UID(fmt.Sprint("pod-", step))
			v.Taken, v.Own = HoldingsOf(slices.Collect(maps.Values(pods))...), Pod{}
			plan, err := v.Plan(pod, nil)
			if err != nil {
				continue
			}
			pods[pod.UID], specs[pod.UID] = plan.Pod, pod
			v.Own = plan.Pod
			if again, err := v.Plan(pod, nil); story(again, err) != story(plan, nil) {
				rt.Fatalf("planned again: %s\nwas: %s", story(again, err), story(plan, nil))
			}
			promisedOnce(rt, v, pods, specs)
		}
	})
}

// someNode draws the topology policy of a node with 10 GiB on each NUMA node, 2 of them huge pages.
func someNode(t *testing.T, rt *rapid.T) View {
	policy := rapid.SampledFrom([]topology.Policy{topology.None, topology.BestEffort,
		topology.Restricted, topology.SingleNUMANode}).Draw(rt, "policy")
	scope := rapid.SampledFrom([]topology.Scope{topology.ContainerScope,
		topology.PodScope}).Draw(rt, "scope")
	return withMemory(rt, rig(t, policy, scope), 10, 2)
}

func somePod(t *rapid.T) []string {
	var out []string
	for i := range rapid.IntRange(1, 4).Draw(t, "containers") {
		kind := rapid.SampledFrom([]string{"", "", "!", "~"}).Draw(t, "kind")
		if i == 0 {
			kind = ""
		}
		text := fmt.Sprintf("c%d%s cpu=%s memory=%dGi", i, kind,
			rapid.SampledFrom([]string{"1500m", "1", "2"}).Draw(t, "cpu"),
			rapid.IntRange(1, 8).Draw(t, "memory"))
		if rapid.Bool().Draw(t, "pages") {
			text += fmt.Sprintf(" hugepages-2Mi=%dGi", rapid.IntRange(1, 3).Draw(t, "huge"))
		}
		out = append(out, text)
	}
	return out
}

// promisedOnce counts naively: what all pods hold on a set of nodes, and on those within it, is no
// more than these nodes have; and each pod with a spec holds what its containers need at any one time.
func promisedOnce(t *rapid.T, v View, pods map[types.UID]Pod, specs map[types.UID]*v1.Pod) {
	has := map[v1.ResourceName][]uint64{v1.ResourceMemory: {7, 8}, "hugepages-2Mi": {2, 2}}
	held, free := map[v1.ResourceName]uint64{}, map[v1.ResourceName]uint64{}
	var blocks []memory.Block
	for uid, p := range pods {
		sum := map[v1.ResourceName]uint64{}
		for _, b := range HoldingsOf(p).Memory() {
			blocks = append(blocks, b)
			held[b.Resource] += b.Size
			sum[b.Resource] += b.Size
		}
		pod, counts := specs[uid]
		if !counts {
			continue
		}
		for name, size := range memory.PodRequests(pod, topology.Rules{}) {
			if sum[name] < size {
				t.Fatalf("pod %s needs %d of %s and holds %d", uid, size, name, sum[name])
			}
		}
	}
	for _, nodes := range []topology.NodeSet{
		topology.NewNodeSet(0), topology.NewNodeSet(1), topology.NewNodeSet(0, 1),
	} {
		for name, of := range has {
			room := uint64(0)
			for _, id := range nodes.IDs() {
				room += of[id] * gib
			}
			for _, b := range blocks {
				if b.Resource == name && b.Nodes.SubsetOf(nodes) {
					if b.Size > room {
						t.Fatalf("nodes %s have too little %s for %v", nodes, name, blocks)
					}
					room -= b.Size
				}
			}
		}
	}
	for _, u := range v.Memory.Usage(blocks) {
		for name, size := range u.Free {
			free[name] += size
		}
	}
	for name, of := range has {
		if free[name]+held[name] != (of[0]+of[1])*gib {
			t.Fatalf("%s: %d free, %d held", name, free[name], held[name])
		}
	}
}
