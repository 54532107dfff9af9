package resources

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// sized is a pod with these CPU and memory limits of containers: "a 2 1Gi, b 500m -"; "pod" is the
// pod as a whole.
func sized(text string) *v1.Pod {
	pod := podtest.New("u")
	for one := range strings.SplitSeq(text, ", ") {
		field := strings.Fields(one)
		for i, name := range []string{"cpu=", "memory="} {
			if field[i+1] = name + field[i+1]; strings.HasSuffix(field[i+1], "-") {
				field[i+1] = ""
			}
		}
		if podtest.Containers(strings.Join(field, " "))(pod); field[0] == "pod" {
			last := len(pod.Spec.Containers) - 1
			pod.Spec.Resources = &pod.Spec.Containers[last].Resources
			pod.Spec.Containers = pod.Spec.Containers[:last:last]
		}
	}
	return pod
}

// resizing returns what a pod and its containers lack that were given one spec and have another.
func resizing(n *Node, given, spec *v1.Pod) []lack {
	pod := cri.Pod{UID: spec.UID}
	all := []live{{pod: &pod}}
	for i := range spec.Spec.Containers {
		name := spec.Spec.Containers[i].Name
		all = append(all, live{pod: &pod, Container: cri.Container{ID: name, Name: name}})
	}
	for i := range all {
		all[i].spec, all[i].record = spec, &record{given: given}
	}
	return compare(all, n, time.Now()).lacks
}

func story(order [3][]lack) string {
	var places []string
	for _, place := range order {
		var steps []string
		for _, l := range place {
			name := l.ID
			if name == "" {
				name = "pod"
			}
			for _, g := range l.gaps {
				name += " " + strings.ReplaceAll(strings.TrimPrefix(string(g.what), "CPU "), " ", "-")
			}
			steps = append(steps, name)
		}
		places = append(places, strings.Join(steps, ", "))
	}
	return strings.Join(places, " | ")
}

// Limits shrink inside the pod first, and grow outside first: a container's is never above its
// pod's. The kernel would refuse that on cgroup v1 for CPU quotas. A limit that is imposed or
// lifted needs no order: without one the container has the pod's.
func TestOrderOfAResize(t *testing.T) {
	n := newNode(Settings{}, machine.Hardware{Machine: eightCPUs(t)}, allocation.State{})
	for name, c := range map[string]struct{ have, want, order string }{
		"nothing changes": {"a 1 1Gi", "a 1 1Gi", " |  | "},
		"all grows": {"a 1 1Gi", "a 2 2Gi",
			" | pod quota shares memory | a quota shares memory"},
		"all shrinks": {"a 2 2Gi", "a 1 1Gi",
			"a quota shares memory | pod quota shares memory | "},
		"CPUs grow, memory shrinks": {"a 1 2Gi", "a 2 1Gi",
			"a shares memory | pod quota shares memory | a quota"},
		"memory grows, CPUs shrink": {"a 2 1Gi", "a 1 2Gi",
			"a quota shares | pod quota shares memory | a memory"},
		"one grows, one shrinks, the pod stays": {"a 1 1Gi, b 2 1Gi", "a 2 1Gi, b 1 1Gi",
			"b quota shares |  | a quota shares"},
		"one grows, one shrinks, the pod grows": {"a 1 1Gi, b 2 1Gi", "a 3 1Gi, b 1 1Gi",
			"b quota shares | pod quota shares | a quota shares"},
		"one grows, one shrinks, the pod shrinks": {"a 1 1Gi, b 4 1Gi", "a 2 1Gi, b 1 1Gi",
			"b quota shares | pod quota shares | a quota shares"},
		"the pod has its own limits": {"pod 2 2Gi, a 1 1Gi", "pod 4 1Gi, a 1 1Gi",
			" | pod quota shares memory | "},
		"containers without limits have the pod's": {"pod 2 2Gi, a - -", "pod 4 1Gi, a - -",
			"a shares memory | pod quota shares memory | a quota"},
		"a limit is imposed": {"a - -, b 1 1Gi", "a 1 1Gi, b 1 1Gi",
			"a quota shares memory, b memory | pod quota shares memory | "}, // b's OOM score
		"a limit beside one that grows": {"a - 1Gi", "a 1 2Gi",
			" | pod quota shares memory | a quota shares memory"},
		"nobody may remove a limit": {"a 1 1Gi", "a 1 -", "a memory |  | "}, // its OOM score
		"requests alone":            {"a 1 1Gi", "a 2 1Gi", " | pod quota shares | a quota shares"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := story(steps(resizing(&n, sized(c.have), sized(c.want)))); got != c.order {
				t.Errorf("got  %q\nwant %q", got, c.order)
			}
		})
	}
}

// A step that failed holds up what depends on it: all of the container, the limits of its pod and
// of the others in it, and CPU sets everywhere if it was about one.
func TestFailedStepsHoldUpOthers(t *testing.T) {
	step := func(uid types.UID, id string, gaps ...gap) lack {
		return lack{live: live{pod: &cri.Pod{UID: uid}, Container: cri.Container{ID: id}}, gaps: gaps}
	}
	set, shares := gap{what: CPUSet, phase: last}, gap{what: CPUShares}
	less, more := gap{what: CPUQuota, phase: first}, gap{what: CPUQuota, phase: last}
	other, pod := step("u", "b", more), step("u", "", less)
	for name, c := range map[string]struct {
		failed lack
		held   []lack
		free   []lack
	}{
		"a CPU set": {step("u", "a", set), []lack{step("u", "a", more), step("v", "c", set)},
			[]lack{other, pod}},
		"a limit": {step("u", "a", less), []lack{step("u", "a", set), other, pod},
			[]lack{step("v", "c", set), step("v", "", more), step("u", "b", shares)}},
		"a value without order": {step("u", "a", shares), []lack{step("u", "a", more)},
			[]lack{other, pod, step("v", "c", set)}},
		"the pod's cgroup": {step("u", "", shares), []lack{other},
			[]lack{step("u", "b", set), step("v", "", more)}},
	} {
		f := failed{pods: map[types.UID]bool{}, ids: map[string]bool{}}
		f.by(c.failed)
		for i, l := range append(slices.Clone(c.held), c.free...) {
			if got := f.hold(l); got != (i < len(c.held)) {
				t.Errorf("after %s failed, %s %q of %q is held up: %t", name, l.gaps[0].what, l.ID,
					l.pod.UID, got)
			}
		}
	}
}

// CPU sets that lose CPUs, and unknown ones, come before those that gain any. One that does both loses first,
// and keeps the rest meanwhile; if there is none, an exclusive one comes last.
func TestOrderOfSets(t *testing.T) {
	m := eightCPUs(t)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(Settings{}, machine.Hardware{Machine: m, CPUs: static},
		allocation.State{Pods: map[types.UID]allocation.Pod{"x": {
			Containers: map[string]allocation.Container{"c": {allocation.CPUs(cpuset.New(2, 3))}}}}})
	for has, want := range map[string]string{
		"0-7": "x-c set, y-c set |  | ",
		"":    "x-c set, y-c set |  | ",
		"?":   "x-c set, y-c set |  | ",
		"2":   "y-c set |  | x-c set",
		"1-2": "x-c set, y-c set |  | x-c set, y-c set",
		"0-1": " |  | x-c set, y-c set",
		"2-3": "y-c set |  | ",
		"2-7": "x-c set, y-c set |  | y-c set",
	} {
		var all []live
		for _, uid := range []types.UID{"y", "x"} {
			c := live{pod: &cri.Pod{UID: uid}, record: &record{}, Container: cri.Container{
				ID: string(uid) + "-c", Name: "c", Applied: cri.Applied{CPUs: has}}}
			c.at = n.place(uid, "c", nil, &c.Applied)
			all = append(all, c)
		}
		if got := story(steps(compare(all, &n, time.Now()).lacks)); got != want {
			t.Errorf("from %q: got %q, want %q", has, got, want)
		}
	}
}

// Whatever is assigned and resized, after each step nobody is on CPUs that an exclusive container
// was given, and no limit is above the pod's.
func TestOrderIsSafe(t *testing.T) {
	m := eightCPUs(t)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "containers")]
		draw := func(label string) *v1.Pod {
			var all []string
			for _, name := range names {
				all = append(all, fmt.Sprintf("%s %d %d", name, rapid.IntRange(1, 4).Draw(t, label),
					rapid.IntRange(1, 4).Draw(t, label)))
			}
			return sized(strings.Join(all, ", "))
		}
		given, spec := draw("given"), draw("spec")
		held := allocation.Pod{Containers: map[string]allocation.Container{
			names[0]: {allocation.CPUs(cpuset.New(rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 1, 5,
				rapid.ID[int]).Draw(t, "exclusive")...))}}}
		n := newNode(Settings{}, machine.Hardware{Machine: m, CPUs: static},
			allocation.State{Pods: map[types.UID]allocation.Pod{"u": held}})
		own := held.Containers[names[0]].CPUs()

		all := []live{{pod: &cri.Pod{UID: "u"}, spec: spec, record: &record{given: given}}}
		sets, now := map[string]cpuset.CPUSet{}, map[string]limits{"": podLimits(n.Pod(given))}
		for i, name := range names {
			has := rapid.SampledFrom([]string{"0-7", "0-3", "7", "0,7"}).Draw(t, "set")
			if i == 0 {
				has = "4" // an earlier assignment
			}
			c := all[0]
			c.Container = cri.Container{ID: name, Name: name, Applied: cri.Applied{CPUs: has}}
			c.record, c.at = &record{given: given}, n.place("u", name, spec, &c.Applied)
			all = append(all, c)
			sets[name], _ = cpuset.Parse(has)
			now[name] = c.limits(&n, given)
		}
		for _, place := range steps(compare(all, &n, time.Now()).lacks) {
			for _, l := range rapid.Permutation(place).Draw(t, "concurrent") {
				if l.lacks(CPUSet) {
					sets[l.ID] = l.at.cpus.CPUSet
				}
				next, want := now[l.ID], l.limits(&n, spec)
				if l.lacks(CPUQuota) {
					next.quota = want.quota
				}
				if l.lacks(CPUShares) {
					next.shares = want.shares
				}
				if l.lacks(Memory) {
					next.memory, next.beside = want.memory, want.beside
				}
				now[l.ID] = next
				safe(t, l, own, names, sets, now)
			}
		}
		for i, name := range append([]string{""}, names...) {
			if want := all[i].limits(&n, spec); now[name] != want {
				t.Fatalf("%q has %+v at last, want %+v", name, now[name], want)
			}
			if want := all[i].at.cpus; !sets[name].Equals(want.CPUSet) {
				t.Fatalf("%q is on %s at last, want %s", name, sets[name], want.text)
			}
		}
	})
}

// safe checks the state after a step.
func safe(t *rapid.T, after lack, own cpuset.CPUSet, names []string, sets map[string]cpuset.CPUSet,
	now map[string]limits) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		l, pod := now[name], now[""]
		if l.quota.Quota > 0 && pod.quota.Quota > 0 && l.quota.Quota > pod.quota.Quota ||
			l.memory > pod.memory {
			t.Fatalf("after %q %s: %q has %+v, its pod %+v", after.ID, after, name, l, pod)
		}
	}
	if after.ID == names[0] && after.lacks(CPUSet) {
		for _, name := range names[1:] {
			if !sets[name].Intersection(own).IsEmpty() {
				t.Fatalf("%s is on %s, which are exclusive now", name, sets[name])
			}
		}
	}
}

// However containers are resized, none is ever on CPUs that another one has for itself.
func TestResizedSetsNeverOverlap(t *testing.T) {
	m := eightCPUs(t)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "shared"}
		// Each keeps its first CPU, and the other ones go to anybody.
		divide := func(label string) map[string]cpuset.CPUSet {
			out := map[string]cpuset.CPUSet{"a": cpuset.New(1), "b": cpuset.New(2), "shared": cpuset.New(0)}
			for cpu := 3; cpu < 8; cpu++ {
				name := rapid.SampledFrom(names).Draw(t, label)
				out[name] = out[name].Union(cpuset.New(cpu))
			}
			return out
		}
		sets, wants := divide("before"), divide("after")
		held := allocation.Pod{Containers: map[string]allocation.Container{
			"a": {allocation.CPUs(wants["a"])}, "b": {allocation.CPUs(wants["b"])}}}
		n := newNode(Settings{}, machine.Hardware{Machine: m, CPUs: static},
			allocation.State{Pods: map[types.UID]allocation.Pod{"u": held}})
		var all []live
		for _, name := range names {
			c := live{pod: &cri.Pod{UID: "u"}, record: &record{}, Container: cri.Container{ID: name, Name: name,
				Applied: cri.Applied{CPUs: sets[name].String()}}}
			c.at = n.place("u", name, nil, &c.Applied)
			all = append(all, c)
		}
		for _, place := range steps(compare(all, &n, time.Now()).lacks) {
			for _, l := range rapid.Permutation(place).Draw(t, "concurrent") {
				sets[l.ID] = l.at.cpus.CPUSet
				for _, name := range names[:2] {
					for _, other := range names {
						if both := sets[name].Intersection(sets[other]); other != name && !both.IsEmpty() {
							t.Fatalf("after %s: %s and %s are on %s", l.ID, name, other, both)
						}
					}
				}
			}
		}
		for _, name := range names {
			if !sets[name].Equals(wants[name]) {
				t.Fatalf("%s is on %s at last, want %s", name, sets[name], wants[name])
			}
		}
	})
}
