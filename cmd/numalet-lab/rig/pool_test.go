package rig

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// wholeOf returns the resources of a pod whose requests are its limits.
func wholeOf(cpu, memory Text) *PodResources {
	all := map[string]Text{"cpu": cpu, "memory": memory}
	return &PodResources{Limits: all, Requests: all}
}

// TestPoolStories: a pod has a pool near its GPU, of which a container has a part and the others share the
// rest; what follows leaves the pool alone. A pool is not resized, what is only counted is.
func TestPoolStories(t *testing.T) {
	two := pooledPods + `{"at": 0, "arrive": "a", "template": "p", "lifetime": 60,`
	const b = `{"at": 30, "arrive": "b", "containers": [{"limits": {"cpu": 2, "memory": "1Gi"}}]}`
	for _, test := range []struct{ policy, trace, want string }{
		{"restricted+pod+pools", two + to() + "}\n" + b,
			// the pool, the init container, the container with a part, the one that shares
			`0s pod 1 admitted cpus 4-6 cpus 4-6 cpus 4 gpu-0 cpus 5-6
30s pod 2 admitted cpus 1-2`},
		{"restricted+pools", two + to() + "}\n" + b,
			`0s pod 1 admitted cpus 4 gpu-0
30s pod 2 admitted cpus 1-2`},
		{"restricted+pod", two + to() + "}\n" + b,
			`0s pod 1 admitted gpu-0
30s pod 2 admitted cpus 1-2`},
		{"restricted+pod+pools", two + to("10 more", "15 p", "20 memory") + "}\n" + b,
			`0s pod 1 admitted cpus 4-6 cpus 4-6 cpus 4 gpu-0 cpus 5-6
10s pod 1 infeasible: Infeasible pod_level_pool
20s pod 1 resized cpus 4-6 cpus 4-6 cpus 4 gpu-0 cpus 5-6
30s pod 2 admitted cpus 1-2`},
		{"restricted+pod+pools+memory-static", two + to("20 memory") + "}\n" + b,
			`0s pod 1 admitted cpus 4-6 cpus 4-6 cpus 4 gpu-0 cpus 5-6
20s pod 1 infeasible: Infeasible pod_level_pool
30s pod 2 admitted cpus 1-2`},
		{"restricted+pod", two + to("10 more", "20 memory") + "}\n" + b,
			`0s pod 1 admitted gpu-0
10s pod 1 resized gpu-0
20s pod 1 resized gpu-0
30s pod 2 admitted cpus 1-2`},
	} {
		if got := story(t, test.policy, test.trace, 0); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.policy, got, test.want)
		}
	}
}

// brokenPools change a good plan of a pod with a pool: CPUs 4-7 and 4 GiB of node 1, of which init-1, a
// sidecar, has CPU 4, main-0 CPU 5 and both 1 GiB; the others share the rest.
var brokenPools = map[string]struct {
	change func(has func(container string) *allocation.Container)
	want   string // "": a good plan
}{
	"good": {func(func(string) *allocation.Container) {}, ""},
	"pool too small": {func(has func(string) *allocation.Container) {
		set(has(""), allocation.CPUs(cpuset.New(4, 5, 6)))
	}, "got the CPUs 4-6 as a whole, and 4 are due to it"},
	"pool too large": {func(has func(string) *allocation.Container) {
		set(has(""), allocation.CPUs(cpuset.New(3, 4, 5, 6, 7)))
	}, "got the CPUs 3-7 as a whole, and 4 are due to it"},
	"no pool": {func(has func(string) *allocation.Container) {
		*has("") = nil
	}, "got the CPUs  as a whole"},
	"pool has a reserved CPU": {func(has func(string) *allocation.Container) {
		set(has(""), allocation.CPUs(cpuset.New(0, 4, 5, 6)))
	}, "CPU 0, which is taken"},
	"pool has a CPU of another pod": {func(has func(string) *allocation.Container) {
		set(has(""), allocation.CPUs(cpuset.New(2, 4, 5, 6)))
	}, "CPU 2, which is taken"},
	"part outside the pool": {func(has func(string) *allocation.Container) {
		set(has("main-0"), allocation.CPUs(cpuset.New(3)))
	}, "main-0: it got the CPUs 3, and its pod's are 4-7"},
	"part too large": {func(has func(string) *allocation.Container) {
		set(has("main-0"), allocation.CPUs(cpuset.New(5, 6)))
		set(has("main-1"), allocation.CPUs(cpuset.New(7)))
		set(has("main-2"), allocation.CPUs(cpuset.New(7)))
	}, "main-0: it got 2 CPUs and asked for 1"},
	"no part": {func(has func(string) *allocation.Container) {
		set(has("main-0"), allocation.CPUs(cpuset.New()))
	}, "main-0: it got 0 CPUs and asked for 1"},
	"two have the same part": {func(has func(string) *allocation.Container) {
		set(has("main-0"), allocation.CPUs(cpuset.New(4)))
		set(has("main-1"), allocation.CPUs(cpuset.New(5, 6, 7)))
		set(has("main-2"), allocation.CPUs(cpuset.New(5, 6, 7)))
	}, "main-0 got CPUs of another one"},
	"an init container has the CPU of a sidecar": {func(has func(string) *allocation.Container) {
		set(has("init-2"), allocation.CPUs(cpuset.New(4)))
	}, "init-2 got CPUs of another one"},
	"an init container shares the CPU of a sidecar": {func(has func(string) *allocation.Container) {
		set(has("init-3"), allocation.CPUs(cpuset.New(4, 5, 6, 7)))
	}, "init-3: it shares the CPUs 4-7 of its pod, of which 5-7 are left"},
	"an init container shares too little": {func(has func(string) *allocation.Container) {
		set(has("init-0"), allocation.CPUs(cpuset.New(6, 7)))
	}, "init-0: it shares the CPUs 6-7 of its pod, of which 4-7 are left"},
	"it shares the part of another": {func(has func(string) *allocation.Container) {
		set(has("main-1"), allocation.CPUs(cpuset.New(5, 6, 7)))
	}, "main-1: it shares the CPUs 5-7 of its pod, of which 6-7 are left"},
	"they share different CPUs": {func(has func(string) *allocation.Container) {
		set(has("main-1"), allocation.CPUs(cpuset.New(6)))
		set(has("main-2"), allocation.CPUs(cpuset.New(7)))
	}, "main-1: it shares the CPUs 6 of its pod"},
	"it shares nothing": {func(has func(string) *allocation.Container) {
		set(has("main-2"), allocation.CPUs(cpuset.New()))
	}, "main-2: it shares the CPUs  of its pod"},
	"pool has too little memory": {func(has func(string) *allocation.Container) {
		set(has(""), on(1, 3))
	}, "got the bytes map[memory:3221225472] as a whole"},
	"pool has no memory": {func(has func(string) *allocation.Container) {
		set(has(""), allocation.Memory(nil))
	}, "got the bytes map[] as a whole"},
	"pool has memory on two places": {func(has func(string) *allocation.Container) {
		set(has(""), append(on(1, 3), on(0, 1)...))
	}, "got memory on nodes 1 and on 0 as a whole"},
	"a part of memory is too large": {func(has func(string) *allocation.Container) {
		set(has("main-0"), on(1, 2))
	}, "main-0: it got 1073741824 bytes of memory more of its pod's"},
	"a part of memory is missing": {func(has func(string) *allocation.Container) {
		set(has("main-0"), allocation.Memory(nil))
	}, "main-0: it got 1073741824 bytes of memory less of its pod's"},
	"a part of memory is elsewhere": {func(has func(string) *allocation.Container) {
		set(has("main-0"), on(0, 1))
	}, "main-0: it got memory on nodes 0, and its pod's is on 1"},
	"it shares memory that another has": {func(has func(string) *allocation.Container) {
		set(has("main-1"), on(1, 3))
	}, "main-1: it got 1073741824 bytes of memory more"},
	"it shares no memory": {func(has func(string) *allocation.Container) {
		set(has("main-1"), allocation.Memory(nil))
	}, "main-1: it got 2147483648 bytes of memory less"},
	"pool has a device": {func(has func(string) *allocation.Container) {
		set(has(""), allocation.Devices{{Resource: "example.com/gpu", IDs: []string{"gpu-1"}}})
	}, "got devices as a whole"},
	"a container that is not there": {func(has func(string) *allocation.Container) {
		set(has("main-9"), allocation.CPUs(cpuset.New(4)))
	}, "container main-9 got something and is not there"},
	"all on the node without the GPU": {func(has func(string) *allocation.Container) {
		for _, name := range []string{"", "init-0", "init-1", "init-2", "init-3", "main-0", "main-1", "main-2"} {
			moved := cpuset.New()
			for _, id := range has(name).CPUs().List() {
				moved = moved.Union(cpuset.New(map[int]int{4: 1, 5: 3, 6: 4, 7: 5}[id]))
			}
			set(has(name), allocation.CPUs(moved))
		}
	}, "something of the nodes 0-1 under the policy single-numa-node"},
}

func set(c *allocation.Container, h allocation.Holding) { *c = c.With(h) }

// on returns GiB of memory on a node.
func on(node topology.NodeID, gib uint64) allocation.Memory {
	return allocation.Memory{{Nodes: topology.NewNodeSet(node), Resource: v1.ResourceMemory, Size: gib << 30}}
}

// TestBrokenPools: a plan that gives a CPU or memory of a pool to too many, or to too few, ends the run.
func TestBrokenPools(t *testing.T) {
	s := small(t)
	part := ContainerSpec{Limits: map[string]Text{"cpu": "1", "memory": "1Gi"}}
	sidecar, gpu := part, ContainerSpec{Limits: maps.Clone(part.Limits)}
	sidecar.RestartPolicy, gpu.Limits["gpu"] = "Always", "1"
	shape, err := s.shape("a", PodSpec{
		Resources:      wholeOf("4", "4Gi"),
		InitContainers: []ContainerSpec{{}, sidecar, part, {}}, Containers: []ContainerSpec{gpu, {}, {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range brokenPools {
		w, err := newWorld(s, policies(t, "single-numa-node+pod+pools+memory-static")[0])
		if err != nil {
			t.Fatal(err)
		}
		w.setIdle(cpuset.New(2), false)
		l := newLots([]Shape{shape}, w.room.View)[0]
		held := map[string]*allocation.Container{}
		for container, has := range map[string]struct {
			cpus cpuset.CPUSet
			gib  uint64
		}{
			"": {cpuset.New(4, 5, 6, 7), 4}, "init-0": {cpuset.New(4, 5, 6, 7), 4}, "init-1": {cpuset.New(4), 1},
			"init-2": {cpuset.New(6), 1}, "init-3": {cpuset.New(5, 6, 7), 3}, "main-0": {cpuset.New(5), 1},
			"main-1": {cpuset.New(6, 7), 2}, "main-2": {cpuset.New(6, 7), 2},
		} {
			held[container] = &allocation.Container{allocation.CPUs(has.cpus), on(1, has.gib)}
		}
		set(held["main-0"], allocation.Devices{{Resource: "example.com/gpu", IDs: []string{"gpu-1"},
			Nodes: []topology.NodeSet{topology.NewNodeSet(1)}}})
		test.change(func(container string) *allocation.Container {
			if held[container] == nil {
				held[container] = &allocation.Container{}
			}
			return held[container]
		})
		plan := allocation.Plan{Pod: allocation.Pod{Containers: map[string]allocation.Container{}}}
		for container, has := range held {
			plan.Pod.Containers[container] = *has
		}
		if err = w.admit(1, l, plan); err == nil {
			w.setIdle(cpuset.New(2), true)
			err = w.check()
		}
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestNothingLeftToShare: a pod whose containers leave nothing of its memory is rejected, and a plan that
// admits it ends the run.
func TestNothingLeftToShare(t *testing.T) {
	const policy = "restricted+pod+pools+memory-static"
	got := story(t, policy, `{"at": 0, "arrive": "a", "resources": {"limits": {"cpu": 3, "memory": "2Gi"}, `+
		`"requests": {"cpu": 3}}, "containers": [{"limits": {"cpu": 1, "memory": "2Gi"}}, {}]}`, 0)
	if want := "0s pod 1 rejected: EmptyPodSharedPoolError memory"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s := small(t)
	shape, err := s.shape("a", PodSpec{Resources: wholeOf("3", "2Gi"), Containers: []ContainerSpec{
		{Limits: map[string]Text{"cpu": "1", "memory": "2Gi"}}, {}}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(s, policies(t, policy)[0])
	if err != nil {
		t.Fatal(err)
	}
	err = w.admit(1, newLots([]Shape{shape}, w.room.View)[0], allocation.Plan{Pod: allocation.Pod{
		Containers: map[string]allocation.Container{
			allocation.WholePod: {allocation.CPUs(cpuset.New(4, 5, 6)), on(1, 2)},
			"main-0":            {allocation.CPUs(cpuset.New(4)), on(1, 2)},
			"main-1":            {allocation.CPUs(cpuset.New(5, 6))},
		}}})
	if err == nil || !strings.Contains(err.Error(), "main-1: it shares its pod's memory, of which nothing is left") {
		t.Errorf("error %v", err)
	}
}

// TestPoolsThatAreNotDue: without the gate, in container scope, or to a pod that is not Guaranteed, a plan
// must give no pool; and what a pod without one has is the node's.
func TestPoolsThatAreNotDue(t *testing.T) {
	s := small(t)
	whole := wholeOf("2", "2Gi")
	burstable := &PodResources{Limits: whole.Limits, Requests: map[string]Text{"cpu": "1", "memory": "2Gi"}}
	for _, test := range []struct {
		policy      string
		whole       *PodResources
		annotations map[string]string
		due         bool
	}{
		{"single-numa-node+pod+pools", whole, nil, true},
		{"single-numa-node+container+pools", whole, map[string]string{"numalet.io/topology-scope": "pod"}, true},
		{"single-numa-node+pod", whole, nil, false},
		{"single-numa-node+container+pools", whole, nil, false},
		{"none+pod+pools", whole, nil, false},
		{"single-numa-node+pod+pools", burstable, nil, false},
		{"single-numa-node+pod+pools+cpu-none", whole, nil, false},
		{"single-numa-node+pod+pools", nil, nil, false},
	} {
		shape, err := s.shape("a", PodSpec{
			Resources: test.whole, Containers: []ContainerSpec{{}}, Annotations: test.annotations,
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(s, policies(t, test.policy)[0])
		if err != nil {
			t.Fatal(err)
		}
		two := allocation.Container{allocation.CPUs(cpuset.New(4, 5))}
		err = w.admit(1, newLots([]Shape{shape}, w.room.View)[0], allocation.Plan{Pod: allocation.Pod{
			Containers: map[string]allocation.Container{allocation.WholePod: two, "main-0": two}}})
		if (err == nil) != test.due {
			t.Errorf("%s, %v: %v", test.policy, test.whole, err)
		}
	}
}

// TestPooledResizes: of pods with pools only what is counted changes; other pods with pod-level resources grow
// and shrink. The checks of what they have run as in every run.
func TestPooledResizes(t *testing.T) {
	s := site(t, "playground")
	mix, err := OpenMix("testdata/pools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := range mix.Templates {
		mix.Templates[i].Resizes = &ResizeSpec{
			Every: Lifetime{Mean: Duration(20 * time.Minute)}, To: []float64{0.5, 2},
		}
	}
	stream, err := s.Generate(mix, Draw{Pods: 150, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies(t, "restricted+pod+pools+memory-none/memory-static,single-numa-node+pools,"+
		"best-effort+pod,restricted+pod+cpu-none+pools+memory-static") {
		pools, refused := false, 0
		o, err := Run(t.Context(), s, p, stream, Options{Follow: func(d Decision) error {
			pools = pools || len(d.Held) > 0 && d.Held[0].Container == allocation.WholePod
			return nil
		}})
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		for _, r := range o.Resizes.Reasons {
			if r.Of == "pod_level_pool" {
				refused += r.Count
			}
		}
		if pools != (refused > 0) || o.Resizes.AtOnce == 0 {
			t.Errorf("%s: pools %v, %d resizes refused since there are, %+v", p.Name, pools, refused, o.Resizes)
		}
	}
}

// TestPoolMemoryIsCountedOnce: of a pod with a pool the parts count no further.
func TestPoolMemoryIsCountedOnce(t *testing.T) {
	s := site(t, "playground")
	static, err := memory.New(s.Machine, s.ReservedMemory)
	if err != nil {
		t.Fatal(err)
	}
	u := newSupply(s, policies(t, "restricted+pod+pools+memory-static")[0], nil, nil)
	u.stock(s.Machine, static, []string{"memory"})
	before := u.memory[0].total
	u.move(allocation.Pod{Containers: map[string]allocation.Container{
		allocation.WholePod: {on(1, 4)}, "a": {on(1, 1)}, "b": {on(1, 3)}, "c": {on(1, 3)},
	}}, -1)
	if took := before - u.memory[0].total; took != 4<<30 {
		t.Errorf("a pool of 4 GiB took %d bytes", took)
	}
}

// TestFewestCPUsOfPools: a device needs as many CPUs beside it as the pool that comes with it has.
func TestFewestCPUsOfPools(t *testing.T) {
	s := small(t)
	shape, err := s.shape("a", PodSpec{
		Resources:  wholeOf("3", "2Gi"),
		Containers: []ContainerSpec{{Limits: map[string]Text{"cpu": "1", "memory": "1Gi", "gpu": "1"}}, {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string]int{"restricted+pod+pools": 3, "restricted+pools": 1, "restricted+pod": 0} {
		if got := fewestCPUs([]Shape{shape}, policies(t, policy)[0].Rules, "example.com/gpu"); got != want {
			t.Errorf("%s: %d, want %d", policy, got, want)
		}
	}
}
