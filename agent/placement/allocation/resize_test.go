package allocation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// hadFirst returns a container that has these CPUs, of which it was given the added ones since it started.
func hadFirst(t *testing.T, cpus string, added ...string) Container {
	t.Helper()
	var layers []cpuset.CPUSet
	for _, text := range added {
		layers = append(layers, had(t, text).CPUs())
	}
	return had(t, cpus).WithAdded(layers...)
}

// TestResize: a container that grows keeps what it has and gets more that is near, as the policy allows; one
// that shrinks gives back what it got last; the others change nothing.
func TestResize(t *testing.T) {
	const misplaced = "TopologyAffinityError: Resources cannot be allocated with Topology locality"
	taking := func(cpus string) func(*View) {
		return func(v *View) {
			v.Taken = HoldingsOf(Pod{UID: "other", Containers: map[string]Container{"main": had(t, cpus)}})
		}
	}
	blocks := func(text string) Container { return holds("", text).Containers["main"] }
	for name, test := range map[string]struct {
		policy      topology.Policy
		scope       topology.Scope
		own         map[string]Container
		from, to    []string
		change      func(*View)
		want, added string
	}{
		"grows beside its own": {
			own: map[string]Container{"main": had(t, "5")}, from: []string{"main cpu=1"}, to: []string{"main cpu=4"},
			want: "main: cpus 4-5,12-13", added: "4,12-13",
		},
		"shrinks to what it started with": {
			own:  map[string]Container{"main": hadFirst(t, "2,3,5,10", "2", "3")},
			from: []string{"main cpu=4"}, to: []string{"main cpu=3"}, want: "main: cpus 2,5,10", added: "2",
		},
		"and below": {
			own:  map[string]Container{"main": hadFirst(t, "2,3,5,10", "3")},
			from: []string{"main cpu=4"}, to: []string{"main cpu=2"}, want: "main: cpus 2,10",
		},
		"to no CPUs of its own": {
			own:  map[string]Container{"main": hadFirst(t, "2,3", "3")},
			from: []string{"main cpu=2"}, to: []string{"main cpu=1500m"}, want: "main:",
		},
		"from none": {
			own:  map[string]Container{"main": {}},
			from: []string{"main cpu=1500m"}, to: []string{"main cpu=2"}, want: "main: cpus 1,9",
		},
		"devices stay, and say where the rest goes": {
			policy: topology.SingleNUMANode, own: map[string]Container{"main": had(t, "4", "gpu-3")},
			from: []string{"main cpu=1 gpu=1"}, to: []string{"main cpu=8 gpu=1"},
			want: "main: cpus 4-7,12-15 gpu-3 (kept)", added: "5-7,12-15",
		},
		"not beyond the node that the policy wants": {
			policy: topology.SingleNUMANode, own: map[string]Container{"main": had(t, "4", "gpu-3")},
			from: []string{"main cpu=1 gpu=1"}, to: []string{"main cpu=9 gpu=1"}, want: misplaced,
		},
		"nor onto another, if others have the rest of this one": {
			policy: topology.Restricted, own: map[string]Container{"main": had(t, "4")}, change: taking("5-7,12-15"),
			from: []string{"main cpu=1"}, to: []string{"main cpu=2"}, want: misplaced,
		},
		"onto another where the policy lets it": {
			policy: topology.BestEffort, own: map[string]Container{"main": had(t, "4")}, change: taking("5-7,12-15"),
			from: []string{"main cpu=1"}, to: []string{"main cpu=2"}, want: "main: cpus 4,8", added: "8",
		},
		"shrinks though the policy would not place it so": {
			policy: topology.SingleNUMANode, own: map[string]Container{"main": hadFirst(t, "2,4,5", "4,5")},
			from: []string{"main cpu=3"}, to: []string{"main cpu=2"}, want: "main: cpus 2,4", added: "4",
		},
		"in pod scope the pod's other containers count": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			own:  map[string]Container{"a": had(t, "4"), "b": had(t, "5-7,12-15")},
			from: []string{"a cpu=1", "b cpu=7"}, to: []string{"a cpu=2", "b cpu=7"}, want: misplaced,
		},
		"what one gives back another gets": {
			own: map[string]Container{"a": had(t, "4"), "b": hadFirst(t, "5-7", "7")}, change: taking("1-3,8-15"),
			from: []string{"a cpu=1", "b cpu=3"}, to: []string{"a cpu=2", "b cpu=2"},
			want: "a: cpus 4,7; b: cpus 5-6", added: "7",
		},
		"no container gets what a later one has": {
			own: map[string]Container{"a": had(t, "4"), "b": had(t, "5-7")}, change: taking("1-3,8-11,13-15"),
			from: []string{"a cpu=1", "b cpu=3"}, to: []string{"a cpu=2", "b cpu=3"},
			want: "a: cpus 4,12; b: cpus 5-7", added: "12",
		},
		"first what init containers had": {
			own:  map[string]Container{"init": had(t, "6,14"), "main": had(t, "6")},
			from: []string{"init! cpu=2", "main cpu=1"}, to: []string{"init! cpu=2", "main cpu=2"},
			want: "init: cpus 6,14; main: cpus 6,14", added: "14",
		},
		"there are too few": {
			own: map[string]Container{"main": had(t, "4")}, change: taking("1-3,5-15"),
			from: []string{"main cpu=1"}, to: []string{"main cpu=2"},
			want: "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: " +
				"requested=2, available=1, which is unexpected",
		},
		"one that has too few already is not given more for its memory": {
			own:  map[string]Container{"main": had(t, "4")},
			from: []string{"main cpu=2 memory=1Gi"}, to: []string{"main cpu=2 memory=2Gi"}, want: "main: cpus 4",
		},
		"memory grows on its node": {
			own: map[string]Container{"main": blocks("1 2Gi")}, change: func(v *View) { *v = withMemory(t, *v, 10, 2) },
			from: []string{"main cpu=1500m memory=2Gi"}, to: []string{"main cpu=1500m memory=8Gi"},
			want: "main: 8Gi memory on 1",
		},
		"and then on others": {
			own: map[string]Container{"main": blocks("1 2Gi")}, change: func(v *View) { *v = withMemory(t, *v, 10, 2) },
			from: []string{"main cpu=1500m memory=2Gi"}, to: []string{"main cpu=1500m memory=9Gi"},
			want: "main: 9Gi memory on 0-1",
		},
		"if the policy lets it": {
			policy: topology.SingleNUMANode, own: map[string]Container{"main": blocks("1 2Gi")},
			change: func(v *View) { *v = withMemory(t, *v, 10, 2) },
			from:   []string{"main cpu=1500m memory=2Gi"}, to: []string{"main cpu=1500m memory=9Gi"}, want: misplaced,
		},
		"memory shrinks where it is": {
			own: map[string]Container{"main": blocks("0-1 9Gi")}, change: func(v *View) { *v = withMemory(t, *v, 10, 2) },
			from: []string{"main cpu=1500m memory=9Gi"}, to: []string{"main cpu=1500m memory=1Gi"},
			want: "main: 1Gi memory on 0-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := rig(t, cmp.Or(test.policy, topology.None), test.scope)
			v.Own, v.Keep, v.Before = Pod{UID: "uid", Containers: test.own}, KeepResized, podOfContainers(test.from...)
			if test.change != nil {
				test.change(&v)
			}
			plan, err := v.Plan(podOfContainers(test.to...), nil)
			if got := story(plan, err); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if err != nil {
				return
			}
			var added []string
			for _, name := range slices.Sorted(maps.Keys(plan.Pod.Containers)) {
				for _, one := range plan.Pod.Containers[name].AddedCPUs() {
					added = append(added, one.String())
				}
			}
			if got := strings.Join(added, " "); got != test.added {
				t.Errorf("added %q, want %q", got, test.added)
			}
		})
	}
}

// TestAddedCPUsAreRecorded: what is written of a container is read again, and agents that do not know of added
// CPUs read all of them.
func TestAddedCPUsAreRecorded(t *testing.T) {
	c := hadFirst(t, "2,3,5,10", "5", "3,10")
	raw, err := json.Marshal(Named{"main", c})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"main","cpus":"2-3,5,10","addedCPUs":["5","3,10"]}`; string(raw) != want {
		t.Errorf("%s\nwant %s", raw, want)
	}
	var again Named
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(again.Container) != fmt.Sprint(c) {
		t.Errorf("%v, want %v", again.Container, c)
	}
}

// TestResizedAtRandom: whatever comes, goes, grows and shrinks, no CPU and no memory is promised twice, and each
// pod has what it asks for.
func TestResizedAtRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := someNode(t, rt)
		pods, specs := map[types.UID]Pod{}, map[types.UID]*v1.Pod{}
		for step := range rapid.IntRange(1, 25).Draw(rt, "steps") {
			uid := types.UID(fmt.Sprint("pod-", step))
			pod := podOfContainers(somePod(rt)...)
			v.Own, v.Keep, v.Before = Pod{}, KeepParts, nil
			if known := slices.Sorted(maps.Keys(pods)); len(known) > 0 {
				switch rapid.IntRange(0, 3).Draw(rt, "what") {
				case 0:
					delete(pods, rapid.SampledFrom(known).Draw(rt, "removed"))
					continue
				case 1, 2:
					uid = rapid.SampledFrom(known).Draw(rt, "resized")
					v.Own, v.Keep, v.Before = pods[uid], KeepResized, specs[uid]
					pod = resized(rt, specs[uid])
				}
			}
			pod.UID = uid
			others := maps.Clone(pods)
			delete(others, uid)
			v.Taken = HoldingsOf(slices.Collect(maps.Values(others))...)
			plan, err := v.Plan(pod, nil)
			if err != nil {
				continue
			}
			pods[uid], specs[uid] = plan.Pod, pod
			promisedOnce(rt, v, pods, lendingNothing(specs, pods))
			for c := range maps.Values(others) {
				if both := c.CPUs().Intersection(plan.Pod.CPUs()); !both.IsEmpty() {
					rt.Fatalf("CPUs %s are %s's and another pod's", both, uid)
				}
			}
			hasWhatItAsks(rt, v, pod, plan.Pod)
		}
	})
}

// lendingNothing leaves out pods of which a group of nodes lends an init container memory: what it lends shrinks
// with its container, and the init container lacks that if it ever runs again.
func lendingNothing(specs map[types.UID]*v1.Pod, pods map[types.UID]Pod) map[types.UID]*v1.Pod {
	out := maps.Clone(specs)
	maps.DeleteFunc(out, func(uid types.UID, _ *v1.Pod) bool {
		all := HoldingsOf(pods[uid]).Memory()
		return slices.ContainsFunc(all, func(b memory.Block) bool { _, lent := b.Lent(all); return lent })
	})
	return out
}

// resized returns the pod with other requests of the containers that a resize may change.
func resized(t *rapid.T, of *v1.Pod) *v1.Pod {
	other, out := podOfContainers(somePod(t)...), of.DeepCopy()
	for i := range out.Spec.Containers {
		from := other.Spec.Containers[i%len(other.Spec.Containers)].Resources
		for _, list := range []v1.ResourceList{out.Spec.Containers[i].Resources.Requests,
			out.Spec.Containers[i].Resources.Limits} {
			list[v1.ResourceCPU], list[v1.ResourceMemory] = from.Limits[v1.ResourceCPU], from.Limits[v1.ResourceMemory]
		}
	}
	return out
}

// hasWhatItAsks checks the containers that run beside each other.
func hasWhatItAsks(t *rapid.T, v View, pod *v1.Pod, held Pod) {
	cpus, asked := cpumanager.ExclusiveOf(pod, v.Rules), memory.RequestsOf(pod, v.Rules)
	seen := cpuset.New()
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		has := held.Containers[c.Name]
		if has.CPUs().Size() != cpus(&c) {
			t.Fatalf("%s asks for %d CPUs and has %s", c.Name, cpus(&c), has.CPUs())
		}
		if c.RestartPolicy == nil && slices.ContainsFunc(pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name }) {
			continue
		}
		if both := seen.Intersection(has.CPUs()); !both.IsEmpty() {
			t.Fatalf("two containers have CPUs %s", both)
		}
		seen = seen.Union(has.CPUs())
		for name, size := range asked(&c) {
			if got := sizeOf(has.Memory(), name); got != size {
				t.Fatalf("%s asks for %d of %s and has %d", c.Name, size, name, got)
			}
		}
	}
}
