package admission

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// spare is what nobody holds or has a claim to, counted. It tells cheaply which of the pods that
// wait may have a place at last.
type spare struct {
	room allocation.Room
	// leaving is what terminating pods hold.
	leaving allocation.Taken
	cpus    int
	devices map[string]int
	// firm is what is requested by pods that stay, gone by those that terminate, claimed by those
	// that wait and were asked about.
	firm, gone, claimed v1.ResourceList
}

func (q *Queue) spare() *spare {
	requests, _ := q.stakes.others(stake{})
	s := &spare{
		room:    q.room(holding{}, q.stakes.all.Except(allocation.Taken{})),
		leaving: q.stakes.going.Except(allocation.Taken{}),
		devices: map[string]int{},
		firm:    requests[staying], gone: requests[going], claimed: v1.ResourceList{},
	}
	if s.room.CPUs != nil {
		s.cpus = s.room.CPUs.Free(s.room.Taken.CPUs).Size()
	}
	return s
}

// mayHold reports whether the pod, which has that much already, can have a place; where it says no,
// planning is in vain. It is asked in the order of arrival.
func (s *spare) mayHold(e *entry, own allocation.Taken) bool {
	fits := s.fits(e.requests)
	add(s.claimed, e.requests)
	if !fits {
		return false
	}
	for name, n := range e.least {
		if name == string(v1.ResourceCPU) {
			if s.room.CPUs != nil && s.cpus+own.CPUs.Difference(s.leaving.CPUs).Size() < n {
				return false
			}
			continue
		}
		if !s.room.Inventory.Resources[name].Connected ||
			s.free(name)+own.Devices[name].Difference(s.leaving.Devices[name]).Len() < n {
			return false
		}
	}
	return true
}

// fits reports whether what is only counted suffices.
func (s *spare) fits(requests v1.ResourceList) bool {
	for name, quantity := range requests {
		used := s.gone[name]
		if claimed := s.claimed[name]; claimed.Cmp(used) > 0 {
			used = claimed
		}
		used = used.DeepCopy()
		used.Add(s.firm[name])
		used.Add(quantity)
		if have := s.room.Allocatable[name]; !podspec.IsExtended(name) && used.Cmp(have) > 0 {
			return false
		}
	}
	return true
}

// greater has the greater of both of each resource.
func greater(a, b v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	maps.Copy(out, a)
	for name, quantity := range b {
		if other := out[name]; quantity.Cmp(other) > 0 {
			out[name] = quantity
		}
	}
	return out
}

// free counts the healthy devices that nobody has.
func (s *spare) free(resource string) int {
	n, counted := s.devices[resource]
	if counted {
		return n
	}
	for _, d := range s.room.Inventory.Resources[resource].Devices {
		if d.Healthy && !s.room.Taken.Devices[resource].Has(d.ID) {
			n++
		}
	}
	s.devices[resource] = n
	return n
}
