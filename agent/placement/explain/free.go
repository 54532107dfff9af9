package explain

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

// Free counts the resources that the room's pods leave free.
func Free(room allocation.Room, resources []string) (out []Supply) {
	for _, name := range resources {
		out = append(out, supply(&room, name))
	}
	return out
}

// Resources lists the resources that the room has by NUMA node: exclusive CPUs, memory of every
// page size, devices.
func Resources(room allocation.Room) (out []string) {
	if room.CPUs != nil {
		out = append(out, cpu)
		if room.CPUs.Isolates() {
			out = append(out, allocation.ResourceIsolated)
		}
	}
	if room.Memory != nil {
		sizes := map[v1.ResourceName]bool{}
		for _, u := range room.Memory.Usage(nil) {
			for name := range u.Allocatable {
				sizes[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(sizes)) {
			out = append(out, string(name))
		}
	}
	return append(out, slices.Sorted(maps.Keys(room.Inventory.Resources))...)
}

// supply counts what other pods leave free of a resource.
func supply(room *allocation.Room, resource string) Supply {
	s := Supply{Resource: resource}
	at := map[topology.NodeID]int{}
	for i, id := range room.Machine.NodeSet().IDs() {
		at[id] = i
		s.Nodes = append(s.Nodes, NodeSupply{Node: int(id)})
	}
	switch {
	case resource == cpu:
		s.countCPUs(room, room.CPUs.Free(cpuset.New()), at)
	case resource == allocation.ResourceIsolated:
		s.countCPUs(room, room.CPUs.Isolated(), at)
	case isMemory(resource):
		s.countMemory(room)
	default:
		s.countDevices(room, at)
		s.Away = disconnected(room.Inventory, resource)
	}
	return s
}

// countCPUs counts the free CPUs among all, which may be given out.
func (s *Supply) countCPUs(room *allocation.Room, all cpuset.CPUSet, at map[topology.NodeID]int) {
	taken := room.Taken.CPUs()
	for _, id := range all.UnsortedList() {
		info, ok := room.Machine.CPU(id)
		if !ok {
			continue
		}
		n := &s.Nodes[at[info.Node]]
		s.Total++
		n.Total++
		if !taken.Contains(id) {
			s.Free++
			n.Free++
		}
	}
}

func (s *Supply) countDevices(room *allocation.Room, at map[topology.NodeID]int) {
	resource := room.Inventory.Resources[s.Resource]
	taken, claimed := room.Taken.Devices()[s.Resource], room.Taken.ByClaims(resource)
	for _, d := range resource.Devices {
		if !d.Healthy {
			s.Unhealthy++
			continue
		}
		if d.Cordoned {
			s.Cordoned++
			continue
		}
		free := 1
		switch {
		case taken.Has(d.ID):
			free = 0
		case claimed[d.ID] != "":
			free = 0
			s.Claimed++
		}
		s.Free += free
		s.Total++
		if d.Nodes.IsEmpty() {
			if s.Nowhere == nil {
				s.Nowhere = &NodeSupply{Node: -1}
			}
			s.Nowhere.Free += free
			s.Nowhere.Total++
		}
		for _, id := range d.Nodes.IDs() {
			if i, known := at[id]; known {
				s.Nodes[i].Free += free
				s.Nodes[i].Total++
			}
		}
	}
}
