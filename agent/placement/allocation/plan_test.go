package allocation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// rig is a machine of two nodes with four cores of two threads each: node 0 has CPUs 0-3 and
// 8-11, node 1 has 4-7 and 12-15. CPU 0 is reserved. gpu-0, gpu-1 are on node 0, gpu-2, gpu-3 on
// node 1.
func rig(t *testing.T, policy topology.Policy, scope topology.Scope) View {
	t.Helper()
	m := topologytest.Machine(t, []topology.Node{{ID: 0}, {ID: 1}}, 16, func(c *topology.CPU) {
		c.Core %= 8
		node := int(c.Core) / 4
		c.Node, c.Socket, c.L3 = topology.NodeID(node), topology.SocketID(node), topology.L3ID(node*4)
	})
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return View{
		Machine: m, CPUs: static, Rules: topology.Rules{Policy: policy, Scope: scope},
		Inventory: devicemanager.Inventory{Resources: map[string]devicemanager.Resource{
			"example.com/gpu": gpus(0, 0, 1, 1),
			"example.com/off": {Name: "example.com/off"},
		}},
		Taken: HoldingsOf(),
	}
}

func gpus(nodes ...topology.NodeID) devicemanager.Resource {
	r := devicemanager.Resource{Name: "example.com/gpu", Connected: true}
	for i, n := range nodes {
		r.Devices = append(r.Devices, &devicemanager.Device{
			ID: fmt.Sprintf("gpu-%d", i), Healthy: true, Nodes: topology.NewNodeSet(n),
		})
	}
	return r
}

// podOfContainers returns a Guaranteed pod with containers such as "name cpu=2 gpu=1".
func podOfContainers(containers ...string) *v1.Pod {
	return podtest.New("pod", podtest.UID("uid"), podtest.Guaranteed(containers...))
}

// story is the plan as one line per container.
func story(p Plan, err error) string {
	if err != nil {
		return err.Error()
	}
	if p.Ask != nil {
		return fmt.Sprintf("ask %s/%s: %d of %v", p.Ask.Container, p.Ask.AskKey.Resource,
			p.Ask.Size, p.Ask.Available)
	}
	var lines []string
	for name, c := range p.Pod.Containers {
		line := name + ":"
		if !c.CPUs().IsEmpty() {
			line += " cpus " + c.CPUs().String()
		}
		for _, b := range c.Memory() {
			line += fmt.Sprintf(" %s %s on %s",
				resource.NewQuantity(int64(b.Size), resource.BinarySI), b.Resource, b.Nodes)
		}
		for _, d := range c.Devices() {
			line += " " + strings.Join(d.IDs, ",")
			if d.Answer != nil {
				line += " (kept)"
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func TestPlan(t *testing.T) {
	holding := func(pods ...Pod) func(*View) {
		return func(v *View) { v.Taken = HoldingsOf(pods...) }
	}
	held := func(cpus string, ids ...string) Pod {
		set, err := cpuset.Parse(cpus)
		if err != nil {
			t.Fatal(err)
		}
		c := Container{}.With(CPUs(set))
		if len(ids) > 0 {
			c = c.With(Devices([]DeviceSet{{Resource: "example.com/gpu", IDs: ids}}))
		}
		return Pod{UID: "other", Containers: map[string]Container{"main": c}}
	}
	for name, test := range map[string]struct {
		policy topology.Policy
		scope  topology.Scope
		change func(*View)
		pod    *v1.Pod
		want   string
	}{
		"CPUs go where the only free GPU is": {
			policy: topology.SingleNUMANode,
			change: holding(held("", "gpu-0", "gpu-1", "gpu-2")),
			pod:    podOfContainers("main cpu=2 gpu=1"),
			want:   "main: cpus 4,12 gpu-3",
		},
		"no node has both": {
			policy: topology.SingleNUMANode,
			change: holding(held("1-3,8-11", "gpu-2", "gpu-3")),
			pod:    podOfContainers("main cpu=2 gpu=1"),
			want:   "TopologyAffinityError: Resources cannot be allocated with Topology locality",
		},
		"best effort takes them apart": {
			policy: topology.BestEffort,
			change: holding(held("1-3,8-11", "gpu-2", "gpu-3")),
			pod:    podOfContainers("main cpu=2 gpu=1"),
			want:   "main: cpus 4,12 gpu-0",
		},
		"three GPUs need two nodes, which restricted accepts": {
			policy: topology.Restricted,
			pod:    podOfContainers("main gpu=3"),
			want:   "main: gpu-0,gpu-1,gpu-2",
		},
		"an init container passes on what it had": {
			policy: topology.None,
			pod:    podOfContainers("init! cpu=2 gpu=2", "main cpu=4 gpu=2"),
			want:   "init: cpus 1,9 gpu-0,gpu-1; main: cpus 1-2,9-10 gpu-0,gpu-1",
		},
		"a sidecar keeps what it has": {
			policy: topology.None,
			pod:    podOfContainers("side~ cpu=2 gpu=2", "main cpu=2 gpu=2"),
			want:   "main: cpus 2,10 gpu-2,gpu-3; side: cpus 1,9 gpu-0,gpu-1",
		},
		"pod scope puts all containers on one node": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			pod:  podOfContainers("a cpu=4 gpu=1", "b cpu=4 gpu=1"),
			want: "a: cpus 4-5,12-13 gpu-2; b: cpus 6-7,14-15 gpu-3",
		},
		"pod scope waits for a plugin as container scope does": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			pod:  podOfContainers("a cpu=2", "b off=1"),
			want: "the device plugin of example.com/off is disconnected",
		},
		"pod scope keeps what a pod holds, though its plugin is away": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			change: func(v *View) {
				v.Inventory.Resources["example.com/gpu"] = devicemanager.Resource{
					Name: "example.com/gpu",
				}
				v.Own = own("5,13", "gpu-3", true)
			},
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 5,13 gpu-3 (kept)",
		},
		"container scope may put them on two": {
			policy: topology.SingleNUMANode,
			pod:    podOfContainers("a cpu=4 gpu=1", "b cpu=4 gpu=1"),
			want:   "a: cpus 1-2,9-10 gpu-0; b: cpus 4-5,12-13 gpu-2",
		},
		"too few CPUs": {
			policy: topology.None,
			pod:    podOfContainers("main cpu=16"),
			want: "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to " +
				"satisfy request: requested=16, available=15, which is unexpected",
		},
		"too few GPUs": {
			policy: topology.None,
			pod:    podOfContainers("main gpu=5"),
			want: "UnexpectedAdmissionError: Allocate failed due to requested number of devices " +
				"unavailable for example.com/gpu. Requested: 5, Available: 4, which is unexpected",
		},
		"no plugin yet": {
			pod:  podOfContainers("main fpga=1"),
			want: "no device plugin has registered example.com/fpga",
		},
		"the plugin is away": {
			pod:  podOfContainers("main off=1"),
			want: "the device plugin of example.com/off is disconnected",
		},
		"the plugin wants to be asked": {
			policy: topology.None,
			change: func(v *View) {
				r := gpus(0, 0, 1, 1)
				r.Options.Preferred = true
				v.Inventory.Resources["example.com/gpu"] = r
			},
			pod:  podOfContainers("main gpu=2"),
			want: "ask main/example.com/gpu: 2 of [gpu-0 gpu-1 gpu-2 gpu-3]",
		},
		"the plugin is asked among what an init container has": {
			policy: topology.None,
			change: func(v *View) {
				r := gpus(0, 0, 1, 1, 1)
				r.Options.Preferred = true
				v.Inventory.Resources["example.com/gpu"] = r
				v.Taken = HoldingsOf(own("1", "gpu-0", true), own("1", "gpu-2", true))
			},
			pod:  podOfContainers("init! gpu=3", "main gpu=2"),
			want: "ask main/example.com/gpu: 2 of [gpu-1 gpu-3 gpu-4]",
		},
		"what a pod holds it keeps, though its plugin is away": {
			policy: topology.SingleNUMANode,
			change: func(v *View) {
				v.Inventory.Resources["example.com/gpu"] = devicemanager.Resource{
					Name: "example.com/gpu",
				}
				v.Own = own("5,13", "gpu-3", true)
			},
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 5,13 gpu-3 (kept)",
		},
		"after a reboot the same ids are asked for again": {
			policy: topology.SingleNUMANode,
			change: func(v *View) { v.Own = own("5,13", "gpu-3", false) },
			pod:    podOfContainers("main cpu=2 gpu=1"),
			want:   "main: cpus 5,13 gpu-3",
		},
		"after a reboot that lost the device another is chosen": {
			policy: topology.SingleNUMANode,
			change: func(v *View) {
				v.Own = own("5,13", "gpu-3", false)
				v.Inventory.Resources["example.com/gpu"] = gpus(0, 0)
			},
			pod:  podOfContainers("main cpu=2 gpu=1"),
			want: "main: cpus 1,9 gpu-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := rig(t, test.policy, test.scope)
			if test.change != nil {
				test.change(&v)
			}
			if got := story(v.Plan(test.pod, nil)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func own(cpus, gpu string, answered bool) Pod {
	set, _ := cpuset.Parse(cpus)
	d := DeviceSet{Resource: "example.com/gpu", IDs: []string{gpu}}
	if answered {
		d.Answer = []byte{}
	}
	return Pod{UID: "uid", Containers: map[string]Container{
		"main": {CPUs(set), Devices{d}},
	}}
}

func TestAdviceIsFollowedAsFarAsItGoes(t *testing.T) {
	v := rig(t, topology.None, topology.ContainerScope)
	r := gpus(0, 0, 1, 1)
	r.Options.Preferred = true
	v.Inventory.Resources["example.com/gpu"] = r
	key := AskKey{Container: "main", Resource: "example.com/gpu"}
	asking, err := v.Plan(podOfContainers("main cpu=1 gpu=2", "side cpu=1"), nil)
	if err != nil || asking.Ask == nil || asking.Ask.AskKey != key {
		t.Fatalf("plan is %+v, %v, want it to ask for %v", asking, err, key)
	}
	asking.Ask = nil
	if got, want := story(asking, nil), "main: cpus 8 gpu-0,gpu-1; side: cpus 1"; got != want {
		t.Errorf("without advice it would get %s, want %s", got, want)
	}
	for want, advice := range map[string][]string{
		"main: gpu-1,gpu-3": {"gpu-3", "gpu-1"},
		"main: gpu-0,gpu-3": {"gpu-3", "somebody-elses"},
		"main: gpu-0,gpu-1": {},
	} {
		got := story(v.Plan(podOfContainers("main gpu=2"), Advice{key: advice}))
		if got != want {
			t.Errorf("with advice %v: %s, want %s", advice, got, want)
		}
	}
}

// A plan reads its view and writes nothing into it: the same view gives the same plan.
func TestPlanIsPure(t *testing.T) {
	v := rig(t, topology.BestEffort, topology.ContainerScope)
	v.Taken = HoldingsOf(own("5,13", "gpu-3", true))
	pod := podOfContainers("init! cpu=2 gpu=1", "main cpu=4 gpu=2")
	first := story(v.Plan(pod, nil))
	for range 3 {
		if again := story(v.Plan(pod, nil)); again != first {
			t.Fatalf("planned again: %s, first: %s", again, first)
		}
	}
}

func TestRejectionsAndUnreadyAreTyped(t *testing.T) {
	v := rig(t, topology.None, topology.ContainerScope)
	var rejection *Rejection
	if _, err := v.Plan(podOfContainers("main cpu=16"), nil); !errors.As(err, &rejection) {
		t.Errorf("error is %T, want *Rejection", err)
	}
	var unready *Unready
	_, err := v.Plan(podOfContainers("main off=1"), nil)
	if !errors.As(err, &unready) || !unready.Known {
		t.Errorf("error is %v, want an *Unready of a known resource", err)
	}
}
