package allocation

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// sum is what many pods have of what is assigned: a value, of which a changed one is another.
type sum struct {
	cpus    cpuCounts
	devices map[string]deviceCounts // by resource
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
		s.cpus = s.cpus.change(had.CPUs, has.CPUs)
	}
	s.devices = s.changeDevices(had.Devices, has.Devices)
	if !slices.Equal(had.Memory, has.Memory) {
		s.memory = changeMemory(maps.Clone(s.memory), had.Memory, has.Memory)
	}
	return s
}

func (s sum) changeDevices(had, has map[string]sets.Set[string]) map[string]deviceCounts {
	out, copied := s.devices, false
	for _, resource := range sets.List(sets.KeySet(had).Union(sets.KeySet(has))) {
		if had[resource].Equal(has[resource]) {
			continue
		}
		if !copied {
			out, copied = maps.Clone(s.devices), true
		}
		if out == nil {
			out = map[string]deviceCounts{}
		}
		out[resource] = out[resource].change(had[resource], has[resource])
		if out[resource].ids.size == 0 {
			delete(out, resource)
		}
	}
	return out
}

func changeMemory(out map[memoryKey]memorySum, had, has []memory.Block) map[memoryKey]memorySum {
	if out == nil {
		out = map[memoryKey]memorySum{}
	}
	for _, b := range has {
		m := out[memoryKey{b.Nodes, b.Resource}]
		out[memoryKey{b.Nodes, b.Resource}] = memorySum{m.blocks + 1, m.bytes + b.Size}
	}
	for _, b := range had {
		key := memoryKey{b.Nodes, b.Resource}
		m := out[key]
		if m.blocks == 1 {
			delete(out, key)
			continue
		}
		out[key] = memorySum{m.blocks - 1, m.bytes - b.Size}
	}
	return out
}

// except is the sum without what one of the pods in it has. Blocks of memory on the same nodes are
// made one.
func (s sum) except(own Taken) Taken {
	out := Taken{CPUs: s.cpus.except(own.CPUs), Devices: map[string]sets.Set[string]{}}
	for resource, counts := range s.devices {
		if ids := counts.except(own.Devices[resource]); len(ids) > 0 {
			out.Devices[resource] = ids
		}
	}
	left := s.memory
	if len(own.Memory) > 0 {
		left = changeMemory(maps.Clone(left), own.Memory, nil)
	}
	for key, m := range left {
		out.Memory = append(out.Memory,
			memory.Block{Nodes: key.nodes, Resource: key.resource, Size: m.bytes})
	}
	return out
}

func (s sum) compact() sum {
	s.cpus = newCPUCounts(s.cpus.pods)
	s.devices = maps.Clone(s.devices)
	for resource, counts := range s.devices {
		s.devices[resource] = newDeviceCounts(counts.ids)
	}
	return s
}

// cpuCounts is how many pods have a CPU, by its id.
type cpuCounts struct {
	pods []uint16 // never written to
	// set is the ids that any pod has, made when it is asked for first; nil: of none.
	set func() cpuset.CPUSet
}

func newCPUCounts(pods []uint16) cpuCounts {
	return cpuCounts{pods: pods, set: sync.OnceValue(func() cpuset.CPUSet {
		var ids []int
		for id, n := range pods {
			if n > 0 {
				ids = append(ids, id)
			}
		}
		return cpuset.New(ids...)
	})}
}

func (c cpuCounts) count(id int) uint16 {
	if id >= len(c.pods) {
		return 0
	}
	return c.pods[id]
}

func (c cpuCounts) change(had, has cpuset.CPUSet) cpuCounts {
	next, stale := slices.Clone(c.pods), c.set == nil
	for _, id := range has.UnsortedList() {
		if id >= len(next) {
			next = append(next, make([]uint16, id+1-len(next))...)
		}
		next[id]++
		stale = stale || next[id] == 1
	}
	for _, id := range had.UnsortedList() {
		next[id]--
		stale = stale || next[id] == 0
	}
	if stale {
		return newCPUCounts(next)
	}
	return cpuCounts{pods: next, set: c.set}
}

func (c cpuCounts) except(own cpuset.CPUSet) cpuset.CPUSet {
	if c.set == nil {
		return cpuset.New()
	}
	var alone []int
	for _, id := range own.UnsortedList() {
		if c.count(id) == 1 {
			alone = append(alone, id)
		}
	}
	if len(alone) == 0 {
		return c.set()
	}
	return c.set().Difference(cpuset.New(alone...))
}

// deviceCounts is how many pods have a device of one resource, by its id.
type deviceCounts struct {
	ids shards[string, int]
	// set is the ids, made when it is asked for first.
	set func() sets.Set[string]
}

func newDeviceCounts(ids shards[string, int]) deviceCounts {
	return deviceCounts{ids: ids, set: sync.OnceValue(func() sets.Set[string] {
		out := make(sets.Set[string], ids.size)
		for id := range ids.all() {
			out.Insert(id)
		}
		return out
	})}
}

func (c deviceCounts) count(id string) int {
	n, _ := c.ids.get(id)
	return n
}

func (c deviceCounts) change(had, has sets.Set[string]) deviceCounts {
	ids, stale := c.ids, c.set == nil
	for id := range has {
		n, _ := ids.get(id)
		ids, stale = ids.with(id, n+1), stale || n == 0
	}
	for id := range had {
		if n, _ := ids.get(id); n > 1 {
			ids = ids.with(id, n-1)
			continue
		}
		ids, stale = ids.without(id), true
	}
	if stale {
		return newDeviceCounts(ids)
	}
	return deviceCounts{ids: ids, set: c.set}
}

func (c deviceCounts) except(own sets.Set[string]) sets.Set[string] {
	all := c.set()
	out := all
	for id := range own {
		if c.count(id) > 1 {
			continue // others have it too
		}
		if len(out) == len(all) {
			out = maps.Clone(all)
		}
		out.Delete(id)
	}
	return out
}
