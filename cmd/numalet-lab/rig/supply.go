package rig

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// supply counts what is free on each node: CPUs, every device resource, and memory and huge pages
// if they are placed.
type supply struct {
	nodeOfCPU map[int]int // index in cpus; isolated CPUs have none
	cpus      shelf
	devices   []deviceShelf // by resource
	memory    []memoryShelf // by resource; empty: memory is only counted
	place     map[topology.NodeID]int
	// groups counts, by node, the blocks that the node holds together with other nodes. If there are
	// any, the node serves no request for a single node, whatever the page size.
	groups []int
	backed topology.NodeSet // nodes with memory
}

// shelf counts what is free of one resource by node.
type shelf struct {
	free    []int
	largest int // capacity of the largest node
}

type deviceShelf struct {
	shelf
	resource string
	total    int
	nodeOf   map[string]int // -1: no particular node
	// needs is the number of exclusive CPUs of the smallest container that asks for such a device, or of its
	// pod's pool.
	needs int
}

// memoryShelf counts bytes. It is not known how a block on several nodes is divided among them, so
// such a block counts only in total.
type memoryShelf struct {
	shelf
	resource string
	total    int // free on all nodes
}

func newSupply(site *Site, p Policy, shapes []Shape, devices []string) *supply {
	place := map[topology.NodeID]int{}
	s := &supply{nodeOfCPU: map[int]int{}, place: place}
	for i, n := range site.Machine.Nodes() {
		place[n.ID] = i
		free := site.Machine.CPUsOfNode(n.ID).Difference(site.ReservedCPUs).
			Difference(site.IsolatedCPUs) // pods that ask for any CPUs cannot have these
		for _, id := range free.UnsortedList() {
			s.nodeOfCPU[id] = i
		}
		s.cpus.add(free.Size())
	}
	for _, name := range devices {
		d := deviceShelf{resource: name, nodeOf: map[string]int{}}
		count := make([]int, len(s.cpus.free))
		for _, device := range site.Inventory.Resources[name].Devices {
			d.total++
			d.nodeOf[device.ID] = -1
			if ids := device.Nodes.IDs(); len(ids) > 0 {
				d.nodeOf[device.ID] = place[ids[0]]
				count[place[ids[0]]]++
			}
		}
		for _, n := range count {
			d.add(n)
		}
		if !p.SharedCPUs {
			d.needs = fewestCPUs(shapes, p.Rules, name)
		}
		s.devices = append(s.devices, d)
	}
	return s
}

func (s *shelf) add(n int) {
	s.free = append(s.free, n)
	s.largest = max(s.largest, n)
}

// fragmentation is 0 if the largest request that one node can serve is as large as it could be.
func (s *shelf) fragmentation() float64 {
	total, most := 0, 0
	for _, n := range s.free {
		total += n
		most = max(most, n)
	}
	return s.fragmented(total, most)
}

// fragmented compares the largest request that one node can serve with the largest possible.
func (s *shelf) fragmented(total, most int) float64 {
	best := min(total, s.largest)
	if best == 0 {
		return 0
	}
	return 1 - float64(most)/float64(best)
}

// fragmentation returns the fragmentation of a shelf. Nodes in a group count as free, but serve no
// request for a single node.
func (s *memoryShelf) fragmentation(groups []int) float64 {
	most := 0
	for i, n := range s.free {
		if groups[i] == 0 {
			most = max(most, n)
		}
	}
	return s.fragmented(s.total, most)
}

// stock counts the placed memory, for those of the resources that are memory.
func (s *supply) stock(m *topology.Machine, static *memory.Static, resources []string) {
	s.groups = make([]int, len(m.Nodes()))
	s.backed = m.MemoryNodes()
	all := static.Allocatable()
	for _, name := range resources {
		if name == string(v1.ResourceCPU) || !isCounted(name) {
			continue
		}
		shelf := memoryShelf{resource: name}
		for _, n := range m.Nodes() {
			free := int(all[n.ID][v1.ResourceName(name)])
			shelf.add(free)
			shelf.total += free
		}
		s.memory = append(s.memory, shelf)
	}
}

// moveMemory takes a block (sign -1), or puts it back (sign 1).
func (s *supply) moveMemory(b memory.Block, sign int) {
	nodes := b.Nodes.Intersect(s.backed).IDs()
	if len(nodes) > 1 {
		for _, id := range nodes {
			s.groups[s.place[id]] -= sign
		}
	}
	for i := range s.memory {
		if shelf := &s.memory[i]; shelf.resource == string(b.Resource) {
			shelf.total += sign * int(b.Size)
			if len(nodes) == 1 {
				shelf.free[s.place[nodes[0]]] += sign * int(b.Size)
			}
		}
	}
}

// stranded returns the share of the devices that are free on nodes with too few free CPUs.
func (d *deviceShelf) stranded(cpus []int) float64 {
	n := 0
	for i, free := range d.free {
		if cpus[i] < d.needs {
			n += free
		}
	}
	return float64(n) / float64(d.total)
}

// move takes what a pod holds (sign -1), or puts it back (sign 1).
func (s *supply) move(held allocation.Pod, sign int) {
	for _, id := range held.CPUs().UnsortedList() {
		if node, ordinary := s.nodeOfCPU[id]; ordinary {
			s.cpus.free[node] += sign
		}
	}
	if len(s.memory) > 0 {
		for _, b := range allocation.HoldingsOf(held).Memory() { // of a pool, without the parts
			s.moveMemory(b, sign)
		}
	}
	seen := map[string]bool{}
	for _, c := range held.Containers {
		for _, set := range devicesOf(c) {
			for i := range s.devices {
				if s.devices[i].resource == set.Resource {
					s.devices[i].move(set.IDs, sign, seen)
				}
			}
		}
	}
}

// move counts each device once, also one that an init container hands to a later container.
func (d *deviceShelf) move(ids []string, sign int, seen map[string]bool) {
	for _, id := range ids {
		key := d.resource + " " + id
		if at := d.nodeOf[id]; at >= 0 && !seen[key] {
			d.free[at] += sign
		}
		seen[key] = true
	}
}

// fewestCPUs returns the smallest number of exclusive CPUs of a container that asks for the resource, or of
// the pool of its pod, which is placed with the devices; 0 if some container has none, or no container asks.
func fewestCPUs(shapes []Shape, policy topology.Rules, resource string) int {
	fewest := -1
	for _, s := range shapes {
		rules, _ := podspec.Rules(s.Pod, policy)
		for i := range s.Pod.Spec.Containers {
			c := &s.Pod.Spec.Containers[i]
			q := c.Resources.Limits[v1.ResourceName(resource)]
			if q.IsZero() && !s.claims(c, resource) {
				continue
			}
			n := cpumanager.Pool(s.Pod, rules)
			if n == 0 {
				n = cpumanager.Exclusive(s.Pod, c, rules)
			}
			if fewest < 0 || n < fewest {
				fewest = n
			}
		}
	}
	return max(0, fewest)
}
