package explain

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/topologytest"
)

// room is a machine of two nodes with four cores of two threads each: node 0 has CPUs 0-3 and 8-11,
// node 1 has 4-7 and 12-15. CPU 0 is reserved. gpu-0 and gpu-1 are on node 0, gpu-2, gpu-3 and
// nic-0 on node 1; the only fpga has no node.
func room(t testing.TB, policy topology.Policy, options cpumanager.Options) allocation.Room {
	t.Helper()
	nodes := []topology.Node{{ID: 0, MemoryBytes: 16 << 30}, {ID: 1, MemoryBytes: 16 << 30}}
	m := topologytest.Machine(t, nodes, 16, func(c *topology.CPU) {
		c.Core %= 8
		n := int(c.Core) / 4
		c.Node, c.Socket, c.L3 = topology.NodeID(n), topology.SocketID(n), topology.L3ID(n*4)
	})
	static, err := cpumanager.NewStatic(m, cpuset.New(0), options)
	if err != nil {
		t.Fatal(err)
	}
	one, two := topology.NewNodeSet(0), topology.NewNodeSet(1)
	return allocation.Room{
		View: allocation.View{
			Machine: m, CPUs: static, Rules: topology.Rules{Policy: policy, Scope: topology.ContainerScope},
			Inventory: devicemanager.Inventory{Resources: map[string]devicemanager.Resource{
				"example.com/gpu":  devices("gpu", one, one, two, two),
				"example.com/nic":  devices("nic", two),
				"example.com/fpga": devices("fpga", topology.NodeSet{}),
				"example.com/off":  {Name: "example.com/off", Problem: "its socket is gone"},
			}},
			Taken: allocation.HoldingsOf(),
		},
		Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{
			MaxPods: 110, Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}),
	}
}

func devices(kind string, at ...topology.NodeSet) devicemanager.Resource {
	r := devicemanager.Resource{Name: "example.com/" + kind, Connected: true}
	for i, nodes := range at {
		r.Devices = append(r.Devices, &devicemanager.Device{
			ID: fmt.Sprintf("%s-%d", kind, i), Healthy: true, Nodes: nodes,
		})
	}
	return r
}

// pod returns a Guaranteed pod with containers such as "name cpu=2 gpu=1".
func pod(containers ...string) *v1.Pod {
	return podtest.New("app", podtest.UID("uid"), podtest.Guaranteed(containers...))
}

// withMemory enables the memory manager: 1Gi of each node's 16Gi is reserved, and node 0 has 2Gi in
// pages of 2Mi.
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
		r.Allocatable = nodestatus.Allocatable(m,
			nodestatus.Reservation{MaxPods: 110, Reserved: v1.ResourceList{
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
			containers[text] = allocation.Container{allocation.Memory{
				{Nodes: at, Resource: v1.ResourceMemory, Size: uint64(size.Value())},
			}}
		}
		r.Taken = allocation.HoldingsOf(allocation.Pod{UID: "other", Containers: containers})
	}
}

// taking lets another pod hold CPUs and gpus.
func taking(cpus string, gpus ...string) func(*allocation.Room) {
	return func(r *allocation.Room) {
		set, err := cpuset.Parse(cpus)
		if err != nil {
			panic(err)
		}
		c := allocation.Container{}.With(allocation.CPUs(set))
		if len(gpus) > 0 {
			c = c.With(allocation.Devices([]allocation.DeviceSet{{Resource: "example.com/gpu", IDs: gpus}}))
		}
		r.Taken = allocation.HoldingsOf(allocation.Pod{
			UID: "other", Containers: map[string]allocation.Container{"main": c},
		})
		r.Others = []v1.ResourceList{{
			v1.ResourceCPU: *resource.NewQuantity(int64(set.Size()), resource.DecimalSI),
		}}
	}
}

// owning lets the pod itself hold CPUs and gpus from before, as after a reboot of the node.
func owning(cpus cpuset.CPUSet, gpus ...string) func(*allocation.Room) {
	return func(r *allocation.Room) {
		c := allocation.Container{allocation.CPUs(cpus), allocation.Devices{
			{Resource: "example.com/gpu", IDs: gpus, Answer: []byte{}},
		}}
		r.Own = allocation.Pod{UID: "uid", Containers: map[string]allocation.Container{"main": c}}
	}
}

// both applies both changes.
func both(one, two func(*allocation.Room)) func(*allocation.Room) {
	return func(r *allocation.Room) {
		one(r)
		two(r)
	}
}
