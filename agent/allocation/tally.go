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

// Tally sums up what many pods hold as they come and go. Several may have the same thing, one that
// terminates and one that has a claim to it: it is taken until the last of them is gone.
type Tally struct {
	cpus    map[int]int // how many have it
	set     *cpuset.CPUSet
	devices map[string]*pile
	memory  map[heapKey]heap
}

// pile is the devices of one resource that are taken.
type pile struct {
	count map[string]int
	// set has the keys of count; nil: to be made anew. It is given out, so that it never changes.
	set sets.Set[string]
}

type heapKey struct {
	nodes    topology.NodeSet
	resource v1.ResourceName
}

// heap is the blocks of one resource on the same nodes.
type heap struct {
	blocks int
	size   uint64
}

// NewTally is the sum of nothing.
func NewTally() *Tally {
	return &Tally{
		cpus: map[int]int{}, devices: map[string]*pile{}, memory: map[heapKey]heap{},
	}
}

// Add counts what one pod holds.
func (t *Tally) Add(held Taken) {
	for _, id := range held.CPUs.UnsortedList() {
		if t.cpus[id]++; t.cpus[id] == 1 {
			t.set = nil
		}
	}
	for resource, ids := range held.Devices {
		p := t.devices[resource]
		if p == nil {
			p = &pile{count: map[string]int{}}
			t.devices[resource] = p
		}
		for id := range ids {
			if p.count[id]++; p.count[id] == 1 {
				p.set = nil
			}
		}
	}
	for _, b := range held.Memory {
		key := heapKey{b.Nodes, b.Resource}
		h := t.memory[key]
		t.memory[key] = heap{h.blocks + 1, h.size + b.Size}
	}
}

// Remove undoes Add.
func (t *Tally) Remove(held Taken) {
	for _, id := range held.CPUs.UnsortedList() {
		if t.cpus[id]--; t.cpus[id] == 0 {
			delete(t.cpus, id)
			t.set = nil
		}
	}
	for resource, ids := range held.Devices {
		p := t.devices[resource]
		for id := range ids {
			if p.count[id]--; p.count[id] == 0 {
				delete(p.count, id)
				p.set = nil
			}
		}
		if len(p.count) == 0 {
			delete(t.devices, resource)
		}
	}
	for _, b := range held.Memory {
		key := heapKey{b.Nodes, b.Resource}
		h := t.memory[key]
		if h.blocks == 1 {
			delete(t.memory, key)
			continue
		}
		t.memory[key] = heap{h.blocks - 1, h.size - b.Size}
	}
}

// Except is the sum without one of the pods in it; Taken{} is nobody. Blocks of memory on the same
// nodes are made one. What is returned does not change with the tally.
func (t *Tally) Except(own Taken) Taken {
	out := Taken{CPUs: t.cpusExcept(own.CPUs), Devices: map[string]sets.Set[string]{}}
	for resource, p := range t.devices {
		if ids := p.except(own.Devices[resource]); len(ids) > 0 {
			out.Devices[resource] = ids
		}
	}
	out.Memory = t.memoryExcept(own.Memory)
	return out
}

func (t *Tally) cpusExcept(own cpuset.CPUSet) cpuset.CPUSet {
	if t.set == nil {
		all := cpuset.New(slices.Collect(maps.Keys(t.cpus))...)
		t.set = &all
	}
	alone := func(id int) bool { return t.cpus[id] == 1 }
	if !slices.ContainsFunc(own.UnsortedList(), alone) {
		return *t.set // others have all of it too
	}
	ids := make([]int, 0, len(t.cpus))
	for id, n := range t.cpus {
		if n > 1 || !own.Contains(id) {
			ids = append(ids, id)
		}
	}
	return cpuset.New(ids...)
}

func (p *pile) except(own sets.Set[string]) sets.Set[string] {
	if p.set == nil {
		p.set = sets.KeySet(p.count)
	}
	out := p.set
	for id := range own {
		if p.count[id] > 1 {
			continue // others have it too
		}
		if len(out) == len(p.count) {
			out = maps.Clone(p.set)
		}
		out.Delete(id)
	}
	return out
}

func (t *Tally) memoryExcept(own []memory.Block) []memory.Block {
	left := t.memory
	if len(own) > 0 {
		left = maps.Clone(t.memory)
	}
	for _, b := range own {
		key := heapKey{b.Nodes, b.Resource}
		left[key] = heap{left[key].blocks - 1, left[key].size - b.Size}
	}
	var out []memory.Block
	for key, h := range left {
		if h.blocks > 0 {
			out = append(out, memory.Block{Nodes: key.nodes, Resource: key.resource, Size: h.size})
		}
	}
	return out
}

// With is what is taken once the pod has its own too.
func (t Taken) With(p Pod) Taken {
	own := TakenBy(p)
	out := Taken{
		CPUs:    t.CPUs.Union(own.CPUs),
		Memory:  slices.Concat(t.Memory, own.Memory),
		Devices: maps.Clone(t.Devices),
	}
	for resource, ids := range own.Devices {
		out.Devices[resource] = t.Devices[resource].Union(ids)
	}
	return out
}
