package explain

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/terminal"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// room is a machine of two nodes with four cores of two threads each: node 0 has CPUs 0-3 and
// 8-11, node 1 has 4-7 and 12-15. CPU 0 is reserved. gpu-0, gpu-1 are on node 0, gpu-2, gpu-3 on
// node 1; nic-0 is on node 1; of fpga there is one, on no node.
func room(t testing.TB, policy topology.Policy, options cpumanager.Options) allocation.Room {
	t.Helper()
	spec := topology.Spec{Name: "rig", Nodes: []topology.Node{
		{ID: 0, MemoryBytes: 16 << 30}, {ID: 1, MemoryBytes: 16 << 30},
	}}
	for id := range 16 {
		core := id % 8
		n := core / 4
		spec.CPUs = append(spec.CPUs, topology.CPU{
			ID: id, Node: topology.NodeID(n), Socket: topology.SocketID(n),
			Core: topology.CoreID(core), L3: topology.L3ID(n * 4),
		})
	}
	m, err := topology.NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	static, err := cpumanager.NewStatic(m, cpuset.New(0), options)
	if err != nil {
		t.Fatal(err)
	}
	one, two := topology.NewNodeSet(0), topology.NewNodeSet(1)
	return allocation.Room{
		View: allocation.View{
			Machine: m, CPUs: static, Policy: policy, Scope: topology.ContainerScope,
			Inventory: deviceplugin.Inventory{Resources: map[string]deviceplugin.Resource{
				"example.com/gpu":  devices("gpu", one, one, two, two),
				"example.com/nic":  devices("nic", two),
				"example.com/fpga": devices("fpga", topology.NodeSet{}),
				"example.com/off":  {Name: "example.com/off", Problem: "its socket is gone"},
			}},
			Taken: allocation.TakenBy(),
		},
		Allocatable: node.Allocatable(m, node.Reservation{
			MaxPods: 110, Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}),
	}
}

func devices(kind string, at ...topology.NodeSet) deviceplugin.Resource {
	r := deviceplugin.Resource{Name: "example.com/" + kind, Connected: true}
	for i, nodes := range at {
		r.Devices = append(r.Devices, &deviceplugin.Device{
			ID: fmt.Sprintf("%s-%d", kind, i), Healthy: true, Nodes: nodes,
		})
	}
	return r
}

// pod has containers "name cpu=2 gpu=1" with these limits; a name that ends in ! is an init
// container, in ~ a sidecar.
func pod(texts ...string) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = "uid", "default", "app"
	for _, text := range texts {
		words := strings.Fields(text)
		list := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			if key != "cpu" && key != "memory" && !strings.HasPrefix(key, "hugepages-") {
				key = "example.com/" + key
			}
			list[v1.ResourceName(key)] = resource.MustParse(value)
		}
		c := v1.Container{
			Name:      strings.TrimRight(words[0], "!~"),
			Resources: v1.ResourceRequirements{Limits: list, Requests: list.DeepCopy()},
		}
		switch words[0][len(words[0])-1] {
		case '~':
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			fallthrough
		case '!':
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// withMemory turns the memory manager on: 1Gi of each node's 16Gi is reserved, and node 0 has 2Gi
// in pages of 2Mi.
func withMemory(changes ...func(*allocation.Room)) func(*allocation.Room) {
	return func(r *allocation.Room) {
		spec := r.Machine.Spec()
		spec.Nodes[0].HugePages = []topology.HugePages{{PageBytes: 2 << 20, Count: 1024}}
		m, err := topology.NewMachine(spec)
		if err != nil {
			panic(err)
		}
		gib := map[v1.ResourceName]uint64{v1.ResourceMemory: 1 << 30}
		if r.Memory, err = memory.New(m, memory.Amounts{0: gib, 1: gib}); err != nil {
			panic(err)
		}
		r.Machine = m
		r.Allocatable = node.Allocatable(m,
			node.Reservation{MaxPods: 110, Reserved: v1.ResourceList{
				v1.ResourceCPU:    resource.MustParse("1"),
				v1.ResourceMemory: resource.MustParse("2Gi"),
			}})
		for _, change := range changes {
			change(r)
		}
	}
}

// holdingMemory lets another pod hold memory: "0-1 20Gi".
func holdingMemory(texts ...string) func(*allocation.Room) {
	return func(r *allocation.Room) {
		containers := map[string]allocation.Container{}
		for _, text := range texts {
			words := strings.Fields(text)
			at, err := topology.ParseNodeSet(words[0])
			if err != nil {
				panic(err)
			}
			size := resource.MustParse(words[1])
			containers[text] = allocation.Container{Memory: []memory.Block{
				{Nodes: at, Resource: v1.ResourceMemory, Size: uint64(size.Value())},
			}}
		}
		r.Taken = allocation.TakenBy(allocation.Pod{UID: "other", Containers: containers})
	}
}

// taking lets another pod hold CPUs and gpus.
func taking(cpus string, gpus ...string) func(*allocation.Room) {
	return func(r *allocation.Room) {
		set, err := cpuset.Parse(cpus)
		if err != nil {
			panic(err)
		}
		c := allocation.Container{CPUs: set}
		if len(gpus) > 0 {
			c.Devices = []allocation.DeviceSet{{Resource: "example.com/gpu", IDs: gpus}}
		}
		r.Taken = allocation.TakenBy(allocation.Pod{
			UID: "other", Containers: map[string]allocation.Container{"main": c},
		})
		r.Others = []v1.ResourceList{{
			v1.ResourceCPU: *resource.NewQuantity(int64(set.Size()), resource.DecimalSI),
		}}
	}
}

// owning has the pod itself hold CPUs and gpus from before, as after a restart of the node.
func owning(cpus cpuset.CPUSet, gpus ...string) func(*allocation.Room) {
	return func(r *allocation.Room) {
		c := allocation.Container{CPUs: cpus, Devices: []allocation.DeviceSet{
			{Resource: "example.com/gpu", IDs: gpus, Answer: []byte{}},
		}}
		r.Own = allocation.Pod{UID: "uid", Containers: map[string]allocation.Container{"main": c}}
	}
}

// both makes both changes.
func both(one, two func(*allocation.Room)) func(*allocation.Room) {
	return func(r *allocation.Room) {
		one(r)
		two(r)
	}
}

type situation struct {
	policy  topology.Policy
	options cpumanager.Options
	change  func(*allocation.Room)
	pod     *v1.Pod
	dry     bool
	// inVain is what the pod of a plugin that is away is rejected with all the same.
	inVain string
}

func situations() map[string]situation {
	const (
		single, restricted = topology.SingleNUMANode, topology.Restricted
	)
	return map[string]situation{
		"admitted-aligned": {policy: single, pod: pod("main cpu=2 gpu=1")},
		"admitted-init": {policy: restricted, pod: pod("init! cpu=4",
			"proxy~ cpu=1", "main cpu=2 gpu=1")},
		"admitted-shared":    {policy: single, pod: pod("main cpu=500m")},
		"admitted-no-policy": {policy: topology.None, pod: pod("main cpu=9 fpga=1")},
		"admitted-apart": {policy: topology.BestEffort, change: taking("1-3,8-11"),
			pod: pod("main cpu=2 gpu=3")},
		"kept-in-part": {policy: restricted,
			change: both(taking("5,13"), owning(cpuset.New(5, 13), "gpu-3")),
			pod:    pod("main cpu=2 gpu=1")},
		"cpus-beyond-a-node": {policy: single, pod: pod("main cpu=10")},
		"cpus-taken-on-both": {policy: single, change: taking("1-2,4-5"), pod: pod("main cpu=7")},
		"cpus-on-one-gpus-on-other": {policy: single, change: taking("1-3,8-10", "gpu-2", "gpu-3"),
			pod: pod("main cpu=4 gpu=1")},
		"gpus-spread": {policy: single, change: taking("1", "gpu-0", "gpu-2"),
			pod: pod("main cpu=2 gpu=2")},
		"gpus-spread-restricted": {policy: restricted, change: taking("1", "gpu-0", "gpu-2"),
			pod: pod("main cpu=2 gpu=2")},
		"gpus-too-few": {policy: topology.None, pod: pod("main gpu=5")},
		"gpus-all-taken-and-cpus-few": {policy: topology.None,
			change: taking("1-7", "gpu-0", "gpu-1", "gpu-2", "gpu-3"),
			pod:    pod("main cpu=9 gpu=1")},
		"gpus-too-few-second-container": {policy: topology.None,
			pod: pod("first gpu=3", "second gpu=2")},
		"gpus-unhealthy": {policy: topology.None, change: func(r *allocation.Room) {
			all := r.Inventory.Resources["example.com/gpu"].Devices
			for i := range all {
				all[i].Healthy = false
			}
		}, pod: pod("main gpu=1")},
		"nic-elsewhere": {policy: single, change: taking("4-7,12-14"),
			pod: pod("main cpu=2 nic=1")},
		"cpus-and-gpus-beyond-a-node": {policy: single, pod: pod("main cpu=12 gpu=4")},
		"pod-scope": {policy: single, change: func(r *allocation.Room) {
			r.Scope = topology.PodScope
		},
			pod: pod("first cpu=5", "second cpu=5")},
		"odd-cpus-of-whole-cores": {policy: topology.None,
			options: cpumanager.Options{FullPCPUsOnly: true}, pod: pod("main cpu=3")},
		"plugin-away":   {policy: single, pod: pod("main cpu=1 off=1")},
		"plugin-never":  {policy: single, pod: pod("main none=1")},
		"out-of-cpu":    {policy: single, change: taking("1-7"), pod: pod("main cpu=8500m")},
		"out-of-memory": {policy: single, pod: pod("main cpu=1 memory=64Gi")},
		"memory-admitted": {policy: single, change: withMemory(holdingMemory("0 12Gi")),
			pod: pod("main cpu=2 memory=4Gi")},
		"memory-beyond-a-node": {policy: single, change: withMemory(),
			pod: pod("main cpu=2 memory=20Gi")},
		"memory-short-on-node": {policy: single,
			change: withMemory(holdingMemory("0 10Gi", "1 8Gi")),
			pod:    pod("main cpu=2 memory=8Gi")},
		"memory-in-a-group": {policy: single, change: withMemory(holdingMemory("0-1 18Gi")),
			pod: pod("main cpu=2 memory=2Gi")},
		"memory-in-a-group-no-policy": {policy: topology.None,
			change: withMemory(holdingMemory("0-1 18Gi")), pod: pod("main cpu=2 memory=2Gi")},
		"memory-free-on-too-many-nodes": {policy: topology.Restricted,
			change: withMemory(holdingMemory("0 10Gi", "1 10Gi")),
			pod:    pod("main cpu=2 memory=7Gi")},
		"huge-pages-short": {policy: topology.None, change: withMemory(),
			pod: pod("main cpu=2 hugepages-2Mi=3Gi")},
		"huge-pages-and-nic-apart": {policy: single, change: withMemory(),
			pod: pod("main cpu=1 nic=1 hugepages-2Mi=1Gi")},
		"memory-and-cpus-apart": {policy: single,
			change: withMemory(taking("1-3,8-10"), func(r *allocation.Room) {
				r.Taken.Memory = append(r.Taken.Memory, memory.Block{
					Nodes: topology.NewNodeSet(1), Resource: v1.ResourceMemory, Size: 14 << 30,
				})
			}),
			pod: pod("main cpu=2 memory=4Gi")},
		"plugin-away-and-cpus-short": {policy: topology.None, change: taking("1-7"),
			pod: pod("main cpu=12 off=1"), inVain: "Allocate failed due to not enough cpus"},
		"plugin-never-and-cpus-beyond-a-node": {policy: single, pod: pod("main cpu=9 none=1"),
			inVain: "Resources cannot be allocated with Topology locality"},
		"plugin-refused": {policy: single, pod: pod("main cpu=1 odd=1"),
			change: func(r *allocation.Room) {
				r.Inventory.Refused = map[string]string{"example.com/odd": "requested API version " +
					"\"v1\" is not supported by kubelet. Supported version is [\"v1beta1\"]"}
			}},
		"plugin-arriving": {policy: single, pod: pod("main cpu=1 off=1"),
			change: func(r *allocation.Room) {
				r.Inventory.Resources["example.com/off"] = deviceplugin.Resource{
					Name: "example.com/off", Arriving: true,
					Problem: "the plugin on off.sock has listed no devices yet",
				}
			}},
		"plugin-without-devices": {policy: single, pod: pod("main cpu=1 off=1"),
			change: func(r *allocation.Room) {
				r.Inventory.Resources["example.com/off"] = deviceplugin.Resource{
					Name: "example.com/off", Connected: true,
				}
			}},
		"pods-too-many": {policy: topology.None, change: func(r *allocation.Room) {
			r.Others = []v1.ResourceList{{v1.ResourcePods: resource.MustParse("110")}}
		}, pod: pod("main cpu=1")},
		"cores-none-whole": {policy: topology.None,
			options: cpumanager.Options{FullPCPUsOnly: true},
			change:  taking("1-7"), pod: pod("main cpu=2")},
		"shared-pool-empty": {policy: topology.None,
			options: cpumanager.Options{StrictReservation: true}, change: func(r *allocation.Room) {
				r.Sharing = true
			}, pod: pod("main cpu=15")},
		"dry-run": {policy: single, pod: pod("main cpu=2 gpu=1"), dry: true},
		"cpus-none-left": {policy: topology.None, change: taking("1-15"),
			pod: pod("main cpu=2")},
	}
}

func (s situation) explain(t *testing.T) (Case, Record) {
	r := room(t, s.policy, s.options)
	if s.change != nil {
		s.change(&r)
	}
	plan, err := r.Plan(s.pod, nil)
	c := Case{Room: r, Pod: s.pod, Plan: plan, Err: err}
	verdict := Verdict{Outcome: "Admit"}
	var rejection *allocation.Rejection
	var unready *allocation.Unready
	switch {
	case errors.As(err, &rejection):
		verdict = Verdict{Outcome: "Reject", Reason: rejection.Reason, Message: rejection.Message}
	case errors.As(err, &unready):
		verdict = Verdict{Outcome: "Wait", Reason: "WaitingForDevicePlugin",
			Message: unready.Error()}
		if s.inVain != "" {
			verdict = Verdict{Outcome: "Reject", Reason: allocation.ReasonUnexpected,
				Message: s.inVain}
		}
	}
	record := c.Judged(verdict)
	record.DryRun = s.dry
	return c, record
}

func TestGolden(t *testing.T) {
	for name, s := range situations() {
		t.Run(name, func(t *testing.T) {
			_, record := s.explain(t)
			got := terminal.Wrap(record.Text(), 100) + "\nshort: " + record.Short() + "\n"
			golden := filepath.Join("testdata", name+".txt")
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("differs from %s (go test -rewrite writes it):\n%s", golden, got)
			}
		})
	}
}

// A rejected pod is told what to do, and a record survives its JSON.
func TestRecords(t *testing.T) {
	for name, s := range situations() {
		c, record := s.explain(t)
		if refused := c.Err != nil; refused != (record.Blocking != nil) {
			t.Errorf("%s: error %v, blocking %v", name, c.Err, record.Blocking)
		}
		raw, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		var back Record
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, record) {
			t.Errorf("%s: JSON made %+v of %+v", name, back, record)
		}
	}
}

// The search ends after a bounded number of plans, however much is asked for.
func TestWouldFitIsBounded(t *testing.T) {
	var texts []string
	for i := range 40 {
		texts = append(texts, fmt.Sprintf("c%d cpu=9 gpu=100000 nic=100000", i))
	}
	s := situation{policy: topology.SingleNUMANode, pod: pod(texts...)}
	c, _ := s.explain(t)
	search := &search{Case: c, left: trials}
	for _, target := range search.targets() {
		search.fewer(target)
	}
	if search.left != 0 {
		t.Errorf("%d trials are left of %d: the case is too small to show a bound", search.left,
			trials)
	}
}

// The message of an event begins with the kubelet's, whole, and is as long as the API takes.
func TestEvent(t *testing.T) {
	long := strings.Repeat("ü", 600)
	for _, tc := range []struct{ message, short, want string }{
		{"no", "", "no"},
		{"no", "try less", "no; try less"},
		{"ab", long, "ab; " + long[:1016] + "..."},
		{long, "try less", long},
	} {
		if got := Event(tc.message, tc.short); got != tc.want {
			t.Errorf("Event(%.20q, %.20q) = %q, want %q", tc.message, tc.short, got, tc.want)
		}
	}
}
