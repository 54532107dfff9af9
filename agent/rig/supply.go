package rig

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// supply counts what is free on each node, of CPUs and of every resource of devices.
type supply struct {
	nodeOfCPU map[int]int // places in cpus
	cpus      shelf
	devices   []deviceShelf // by resource
}

// shelf is one resource by node.
type shelf struct {
	free    []int
	largest int // node, when it is empty
}

type deviceShelf struct {
	shelf
	resource string
	total    int
	nodeOf   map[string]int // -1: nowhere in particular
	// needs is the number of CPUs of the smallest container that asks for such a device.
	needs int
}

func newSupply(site *Site, p Policy, shapes []Shape, devices []string) *supply {
	s := &supply{nodeOfCPU: map[int]int{}}
	place := map[topology.NodeID]int{}
	for i, n := range site.Machine.Nodes() {
		place[n.ID] = i
		free := site.Machine.CPUsOfNode(n.ID).Difference(site.ReservedCPUs)
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
			d.needs = fewestCPUs(shapes, name)
		}
		s.devices = append(s.devices, d)
	}
	return s
}

func (s *shelf) add(n int) {
	s.free = append(s.free, n)
	s.largest = max(s.largest, n)
}

// fragmentation is 0 when the largest request that one node can take is as large as it could be.
func (s *shelf) fragmentation() float64 {
	total, most := 0, 0
	for _, n := range s.free {
		total += n
		most = max(most, n)
	}
	best := min(total, s.largest)
	if best == 0 {
		return 0
	}
	return 1 - float64(most)/float64(best)
}

// stranded is the share of the devices that are free beside too few free CPUs.
func (d *deviceShelf) stranded(cpus []int) float64 {
	n := 0
	for i, free := range d.free {
		if cpus[i] < d.needs {
			n += free
		}
	}
	return float64(n) / float64(d.total)
}

// move takes what a pod holds (sign -1), or puts it back.
func (s *supply) move(held allocation.Pod, sign int) {
	for _, id := range held.CPUs().UnsortedList() {
		s.cpus.free[s.nodeOfCPU[id]] += sign
	}
	seen := map[string]bool{}
	for _, c := range held.Containers {
		for _, set := range c.Devices {
			for i := range s.devices {
				if s.devices[i].resource == set.Resource {
					s.devices[i].move(set.IDs, sign, seen)
				}
			}
		}
	}
}

// move counts each device once, also one that an init container hands on.
func (d *deviceShelf) move(ids []string, sign int, seen map[string]bool) {
	for _, id := range ids {
		key := d.resource + " " + id
		if at := d.nodeOf[id]; at >= 0 && !seen[key] {
			d.free[at] += sign
		}
		seen[key] = true
	}
}

// fewestCPUs is the smallest number of CPUs of its own that a container has which asks for the
// resource; 0 if one has none, or nobody asks.
func fewestCPUs(shapes []Shape, resource string) int {
	fewest := -1
	for _, s := range shapes {
		for i := range s.Pod.Spec.Containers {
			c := &s.Pod.Spec.Containers[i]
			q := c.Resources.Limits[v1.ResourceName(resource)]
			if q.IsZero() {
				continue
			}
			if n := cpumanager.Exclusive(s.Pod, c); fewest < 0 || n < fewest {
				fewest = n
			}
		}
	}
	return max(0, fewest)
}
