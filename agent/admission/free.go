package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// free is what nobody holds or has a claim to, counted. It tells cheaply which of the pods that
// wait may have a place at last.
type free struct {
	room   allocation.Room
	ledger allocation.Ledger
	// cpus are exclusive CPUs, isolated those of them that are for pods that ask for them.
	cpus, isolated int
	devices        map[string]int
	// stays and goes are what pods of these standings request, claimed what those request that
	// wait with a claim and were asked about.
	stays, goes, claimed v1.ResourceList
}

func freeIn(s Snapshot) *free {
	o := s.ledger.Beside("", s.ledger.Resources())
	f := &free{
		room: s.room(o, allocation.Pod{}), ledger: s.ledger, devices: map[string]int{},
		stays: o.Requests[allocation.Stays], goes: o.Requests[allocation.Goes],
	}
	if f.room.CPUs != nil {
		f.cpus = f.room.CPUs.Free(f.room.Taken.CPUs).Size()
		f.isolated = f.room.CPUs.Isolated().Difference(f.room.Taken.CPUs).Size()
	}
	return f
}

// mayHold reports whether the pod, which has a claim, can have a place; where it says no, planning
// is in vain. It is asked in the order of arrival.
func (f *free) mayHold(e *entry) bool {
	fits := f.fits(e.requests)
	f.claimed = allocation.AddRequests(f.claimed, e.requests)
	if !fits {
		return false
	}
	for name, n := range e.least {
		if name == string(v1.ResourceCPU) {
			have := f.cpus
			if podspec.CPURules(e.pod).Isolated {
				have = f.isolated
			}
			if f.room.CPUs != nil && have+f.ledger.Firm(e.pod.UID, name) < n {
				return false
			}
			continue
		}
		if !f.room.Inventory.Resources[name].Connected ||
			f.count(name)+f.ledger.Firm(e.pod.UID, name) < n {
			return false
		}
	}
	return true
}

// fits reports whether what is only counted suffices.
func (f *free) fits(requests v1.ResourceList) bool {
	counted := f.room.Counted()
	for name, quantity := range requests {
		used := f.goes[name]
		if claimed := f.claimed[name]; claimed.Cmp(used) > 0 {
			used = claimed
		}
		used = used.DeepCopy()
		used.Add(f.stays[name])
		used.Add(quantity)
		if have := counted[name]; !podspec.IsExtended(name) && used.Cmp(have) > 0 {
			return false
		}
	}
	return true
}

// count is the devices on offer that nobody has.
func (f *free) count(resource string) int {
	n, counted := f.devices[resource]
	if counted {
		return n
	}
	for _, d := range f.room.Inventory.Resources[resource].Devices {
		if d.Offered() && !f.room.Taken.Devices[resource].Has(d.ID) {
			n++
		}
	}
	f.devices[resource] = n
	return n
}
