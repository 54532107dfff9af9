package allocation

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// sum is what many pods have of what is assigned, and how many have it: a value, of which a changed
// one is another. Nothing in it is written to.
type sum struct {
	cpus    []uint16                       // by id
	devices map[string]shards[string, int] // by resource and id
	memory  map[memoryKey]memorySum
}

type memoryKey struct {
	nodes    topology.NodeSet
	resource v1.ResourceName
}

// memorySum is the blocks of one resource on the same nodes.
type memorySum struct {
	blocks int
	bytes  uint64
}

// change is the sum without what one pod had and with what it has.
func (s sum) change(had, has Taken) sum {
	if !had.CPUs.Equals(has.CPUs) {
		s.cpus = s.changeCPUs(had.CPUs, has.CPUs)
	}
	if !maps.EqualFunc(had.Devices, has.Devices, sets.Set[string].Equal) {
		s.devices = s.changeDevices(had.Devices, has.Devices)
	}
	if !slices.Equal(had.Memory, has.Memory) {
		s.memory = s.changeMemory(had.Memory, has.Memory)
	}
	return s
}

func (s sum) changeCPUs(had, has cpuset.CPUSet) []uint16 {
	out := slices.Clone(s.cpus)
	for _, id := range has.UnsortedList() {
		if more := id + 1 - len(out); more > 0 {
			out = append(out, make([]uint16, more)...)
		}
		out[id]++
	}
	for _, id := range had.UnsortedList() {
		out[id]--
	}
	return out
}

func (s sum) changeDevices(had, has map[string]sets.Set[string]) map[string]shards[string, int] {
	out := make(map[string]shards[string, int], len(s.devices)+len(has))
	maps.Copy(out, s.devices)
	for resource, ids := range has {
		for id := range ids.Difference(had[resource]) {
			n, _ := out[resource].get(id)
			out[resource] = out[resource].with(id, n+1)
		}
	}
	for resource, ids := range had {
		for id := range ids.Difference(has[resource]) {
			if n, _ := out[resource].get(id); n > 1 {
				out[resource] = out[resource].with(id, n-1)
			} else {
				out[resource] = out[resource].without(id)
			}
		}
	}
	return out
}

func (s sum) changeMemory(had, has []memory.Block) map[memoryKey]memorySum {
	out := make(map[memoryKey]memorySum, len(s.memory)+len(has))
	maps.Copy(out, s.memory)
	for _, b := range has {
		m := out[memoryKey{b.Nodes, b.Resource}]
		out[memoryKey{b.Nodes, b.Resource}] = memorySum{m.blocks + 1, m.bytes + b.Size}
	}
	for _, b := range had {
		key := memoryKey{b.Nodes, b.Resource}
		m := out[key]
		if out[key] = (memorySum{m.blocks - 1, m.bytes - b.Size}); m.blocks == 1 {
			delete(out, key)
		}
	}
	return out
}

// taken lists the sum, of devices those of the given resources. Blocks of memory on the same nodes
// are one.
func (s sum) taken(resources []string) Taken {
	out := Taken{Devices: map[string]sets.Set[string]{}}
	var cpus []int
	for id, n := range s.cpus {
		if n > 0 {
			cpus = append(cpus, id)
		}
	}
	out.CPUs = cpuset.New(cpus...)
	for _, resource := range resources {
		if ids := s.devices[resource]; ids.size > 0 {
			out.Devices[resource] = make(sets.Set[string], ids.size)
			for id := range ids.all() {
				out.Devices[resource].Insert(id)
			}
		}
	}
	for key, m := range s.memory {
		out.Memory = append(out.Memory,
			memory.Block{Nodes: key.nodes, Resource: key.resource, Size: m.bytes})
	}
	return out
}
