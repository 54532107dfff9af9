package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/goldentest"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/internal/terminal"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

type situation struct {
	policy  topology.Policy
	options cpumanager.Options
	change  func(*allocation.Room)
	pod     *v1.Pod
	dry     bool
	// inVain is what a pod would lack even if its disconnected plugin were there.
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
		"admitted-ahead": {policy: single, change: taking("1-3"), pod: pod("init! cpu=1",
			"main cpu=6")},
		"ahead-and-out-of-memory": {policy: single, change: taking("1-3"), pod: pod("init! cpu=1",
			"main cpu=6 memory=64Gi")},
		"init-in-a-group": {policy: restricted, change: withMemory(holdingMemory("0-1 4Gi")),
			pod: pod("init! cpu=1500m memory=2Gi", "main cpu=1500m memory=20Gi")},
		"init-in-the-way": {policy: restricted, change: withMemory(),
			pod: pod("init! cpu=1500m memory=2Gi hugepages-2Mi=1Gi",
				"main cpu=1500m memory=20Gi")},
		"too-large-after-init": {policy: single, change: taking("1-2,4-5"),
			pod: pod("init! cpu=1", "main cpu=7")},
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
				r.Taken = r.Taken.With(allocation.Memory(append(r.Taken.Memory(), memory.Block{
					Nodes: topology.NewNodeSet(1), Resource: v1.ResourceMemory, Size: 14 << 30,
				})))
			}),
			pod: pod("main cpu=2 memory=4Gi")},
		"plugin-away-and-cpus-short": {policy: topology.None, change: taking("1-7"),
			pod: pod("main cpu=12 off=1"), inVain: "Allocate failed due to not enough cpus"},
		"plugin-never-and-cpus-beyond-a-node": {policy: single, pod: pod("main cpu=9 none=1"),
			inVain: "Resources cannot be allocated with Topology locality"},
		"plugin-refused": {policy: single, pod: pod("main cpu=1 odd=1"),
			change: func(r *allocation.Room) {
				r.Inventory.Refused = map[string]string{"example.com/odd": "requested API " +
					"version \"v1\" is not supported by kubelet. Supported version is " +
					"[\"v1beta1\"]"}
			}},
		"plugin-arriving": {policy: single, pod: pod("main cpu=1 off=1"),
			change: func(r *allocation.Room) {
				r.Inventory.Resources["example.com/off"] = devicemanager.Resource{
					Name: "example.com/off", Arriving: true,
					Problem: "the plugin on off.sock has listed no devices yet",
				}
			}},
		"plugin-without-devices": {policy: single, pod: pod("main cpu=1 off=1"),
			change: func(r *allocation.Room) {
				r.Inventory.Resources["example.com/off"] = devicemanager.Resource{
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
		"isolated-and-whole": {policy: single,
			change: isolating("4-6,12-14", topology.CPURules{Isolated: true, WholeCores: true}),
			pod:    asking("main cpu=3 gpu=1", podspec.AnnotationIsolated, podspec.AnnotationWholeCores)},
		"isolated-too-many": {policy: restricted,
			change: both(taking("5,13"), isolating("4-6,12-14", topology.CPURules{Isolated: true})),
			pod:    asking("main cpu=6", podspec.AnnotationIsolated)},
		"isolated-beyond-a-node": {policy: single,
			change: isolating("2-3,4-6", topology.CPURules{Isolated: true}),
			pod:    asking("main cpu=4", podspec.AnnotationIsolated)},
		"ordinary-beside-isolated": {policy: topology.None,
			change: isolating("2-7,10-15", topology.CPURules{}), pod: pod("main cpu=4")},
		"whole-cores-none-whole": {policy: topology.None,
			change: both(taking("1-6"), isolating("", topology.CPURules{WholeCores: true})),
			pod:    asking("main cpu=3", podspec.AnnotationWholeCores)},
		"pool-admitted": {policy: single, change: withMemory(pooling),
			pod: pooled("cpu=4 memory=4Gi", "init!", "main cpu=2 memory=1Gi gpu=1", "log")},
		"pool-all-taken": {policy: single, change: withMemory(pooling),
			pod: pooled("cpu=2 memory=4Gi", "main cpu=2 memory=1Gi", "log")},
		"pool-beyond-a-node": {policy: single, change: withMemory(pooling),
			pod: pooled("cpu=9 memory=4Gi", "main cpu=2 memory=1Gi", "log")},
		"cpus-none-left": {policy: topology.None, change: taking("1-15"),
			pod: pod("main cpu=2")},
	}
}

// pooling has pods with pod-level resources get pools.
func pooling(r *allocation.Room) { r.PodLevel, r.Scope = true, topology.PodScope }

func pooled(resources string, containers ...string) *v1.Pod {
	return podtest.New("app", podtest.UID("uid"), podtest.Containers(containers...),
		podtest.Resources(resources))
}

// isolating isolates CPUs and applies rules.
func isolating(cpus string, rules topology.CPURules) func(*allocation.Room) {
	return func(r *allocation.Room) {
		set, err := cpuset.Parse(cpus)
		if err == nil {
			r.CPUs, err = r.CPUs.Isolating(set)
		}
		if err != nil {
			panic(err)
		}
		r.CPURules = rules
	}
}

func asking(container string, annotations ...string) *v1.Pod {
	p := pod(container)
	for _, name := range annotations {
		podtest.Annotations(name, "true")(p)
	}
	return p
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
	record.Subject.DryRun = s.dry
	return c, record
}

func TestGolden(t *testing.T) {
	for name, s := range situations() {
		t.Run(name, func(t *testing.T) {
			_, record := s.explain(t)
			got := terminal.Wrap(record.Text(), 100) + "\nshort: " + record.Short() + "\n"
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), got)
		})
	}
}

// A rejected pod gets a hint, and a record survives JSON, in which its parts form one object.
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
		flat, err := json.Marshal(struct {
			Verdict
			Subject
			Rules
			Attempt
			Remarks
		}{record.Verdict, record.Subject, record.Rules, record.Attempt, record.Remarks})
		if err != nil || string(raw) != string(flat) {
			t.Errorf("%s: JSON is %s, %v; want %s", name, raw, err, flat)
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

// The search ends after a bounded number of plans, however much the pod asks for.
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

// The message of an event starts with the kubelet's whole message and fits the API's bound.
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
