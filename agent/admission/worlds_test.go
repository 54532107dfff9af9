package admission

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
	"github.com/numalet/numalet/topology/memory"
)

// smallMachines are the built-in ones on which many cases do not take long.
func smallMachines(t *testing.T) []*topology.Machine {
	var out []*topology.Machine
	for _, name := range discover.FixtureNames() {
		m, err := discover.Fixture(name)
		if err != nil {
			t.Fatal(err)
		}
		if m.Online().Size() <= 64 && m.NodeSet().Len() <= 8 {
			out = append(out, m)
		}
	}
	if len(out) < 3 {
		t.Fatal("too few machines")
	}
	return out
}

// machine is a built-in one, or more often one of up to four nodes with few cores of 1, 2 or 4
// threads.
func (w *world) machine(t *testing.T, builtIn []*topology.Machine) *topology.Machine {
	if w.IntN(12) == 0 {
		return builtIn[w.IntN(len(builtIn))]
	}
	spec := topology.Spec{}
	nodes, cores, threads := 1+w.IntN(4), 2+w.IntN(3), 1<<w.IntN(3)
	for n := range nodes {
		spec.Nodes = append(spec.Nodes, topology.Node{
			ID: topology.NodeID(n), MemoryBytes: 16 << 30,
			HugePages: []topology.HugePages{{PageBytes: 2 << 20, Count: uint64(512 * w.IntN(3))}},
		})
		for i := range cores * threads {
			core := n*cores + i/threads
			spec.CPUs = append(spec.CPUs, topology.CPU{
				ID: i%threads*nodes*cores + core, Core: topology.CoreID(core),
				Node:   topology.NodeID(n),
				Socket: topology.SocketID(n / 2), L3: topology.L3ID(n * cores),
			})
		}
	}
	m, err := topology.NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// world is a random node and the pods that come to it.
type world struct {
	*rand.Rand
	desk    *desk
	plugins *plugins
}

func (w *world) configure(t *testing.T, c *Config, m *topology.Machine) {
	h := machine.Hardware{Machine: m}
	reserved := 1 + w.IntN(min(2, m.Online().Size()-1))
	if w.IntN(5) > 0 {
		options := cpumanager.Options{
			FullPCPUsOnly: w.IntN(3) == 0, StrictReservation: w.IntN(3) == 0,
			PreferAlignByUncoreCache: w.IntN(4) == 0, DistributeAcrossNUMA: w.IntN(4) == 0,
		}
		var err error
		first := cpuset.New(m.Online().List()[:reserved]...)
		if h.CPUs, err = cpumanager.NewStatic(m, first, options); err != nil {
			t.Fatal(err)
		}
	}
	if w.IntN(3) == 0 {
		h.Options = topology.PreferClosest(m)
	}
	kept := resource.MustParse("1Gi")
	if w.IntN(2) == 0 {
		var err error
		first := m.MemoryNodes().IDs()[0]
		if h.Memory, err = memory.New(m, memory.Amounts{
			first: {v1.ResourceMemory: uint64(kept.Value())},
		}); err != nil {
			t.Fatal(err)
		}
	}
	h.Allocatable = node.Allocatable(m, node.Reservation{
		MaxPods: int64(2 + w.IntN(12)),
		Reserved: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewQuantity(int64(reserved), resource.DecimalSI),
			v1.ResourceMemory: kept,
		},
	})
	c.Hardware = func() machine.Hardware { return h }
	c.Policy = []topology.Policy{
		topology.None, topology.BestEffort, topology.Restricted, topology.SingleNUMANode,
	}[w.IntN(4)]
	c.Scope = []topology.Scope{topology.ContainerScope, topology.PodScope}[w.IntN(2)]
	c.Handlers = []Handler{Sysctls(nil)}
	if w.IntN(2) == 0 {
		c.Wait = 0
	}
}

// inventory lets up to three plugins offer devices, or be away.
func (w *world) inventory(m *topology.Machine) {
	nodes := m.NodeSet().IDs()
	for _, name := range []string{"example.com/gpu", "example.com/nic", "example.com/fpga"} {
		if w.IntN(6) == 0 {
			continue
		}
		r := deviceplugin.Resource{Name: name, Connected: w.IntN(10) > 0, Preferred: w.IntN(3) == 0}
		for i := range 1 + w.IntN(8) {
			d := deviceplugin.Device{
				ID: fmt.Sprintf("%s-%d", name[12:], i), Healthy: w.IntN(10) > 0,
			}
			if w.IntN(4) > 0 {
				d.Nodes = topology.NewNodeSet(nodes[w.IntN(len(nodes))])
			}
			r.Devices = append(r.Devices, &d)
		}
		w.plugins.set(r)
	}
}

// advice is a plugin's preference: always the same for the same question, now and then none.
func (w *world) advice(req deviceplugin.PreferredRequest) ([]string, error) {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, req)
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	switch r.IntN(6) {
	case 0:
		return nil, errors.New("no preference today")
	case 1:
		return nil, context.DeadlineExceeded
	}
	ids := slices.Clone(req.MustInclude)
	rest := slices.DeleteFunc(slices.Clone(req.Available), func(id string) bool {
		return slices.Contains(ids, id)
	})
	r.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append(ids, rest[:max(0, req.Size-len(ids))]...), nil
}

func (w *world) pod(uid types.UID) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Namespace, p.Name = uid, "default", string(uid)
	if w.IntN(60) == 0 {
		p.Spec.SecurityContext = &v1.PodSecurityContext{
			Sysctls: []v1.Sysctl{{Name: "vm.swappiness", Value: "1"}},
		}
	}
	for i := range w.IntN(3) {
		c := w.container(fmt.Sprintf("init%d", i))
		if w.IntN(2) == 0 {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range 1 + w.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, w.container(fmt.Sprintf("main%d", i)))
	}
	return p
}

func (w *world) container(name string) v1.Container {
	cpus := []string{"500m", "1", "1", "2", "2", "2", "3", "4", "6", "8", "16", "30"}
	memory := []string{"64Mi", "64Mi", "1Gi", "1Gi", "2Gi", "8Gi", "20Gi", "700Gi"}
	limits := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse(cpus[w.IntN(len(cpus))]),
		v1.ResourceMemory: resource.MustParse(memory[w.IntN(len(memory))]),
	}
	for _, name := range []v1.ResourceName{
		"example.com/gpu", "example.com/nic", "example.com/fpga",
	} {
		if w.IntN(4) == 0 {
			limits[name] = *resource.NewQuantity(int64(1+w.IntN(3)), resource.DecimalSI)
		}
	}
	if w.IntN(6) == 0 {
		limits["hugepages-2Mi"] = *resource.NewQuantity(int64(1+w.IntN(3))<<29, resource.BinarySI)
	}
	c := v1.Container{Name: name, Resources: v1.ResourceRequirements{
		Limits: limits, Requests: limits.DeepCopy(),
	}}
	if w.IntN(6) == 0 { // then the pod is not guaranteed
		c.Resources.Requests[v1.ResourceCPU] = resource.MustParse("250m")
	}
	return c
}
