package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Free counts what no pod holds or claims. It tells cheaply which waiting pods may have a place,
// without a plan for each.
type Free struct {
	room   allocation.Room
	ledger allocation.Ledger
	// cpus counts free exclusive CPUs, isolated those of them that only go to pods that ask.
	cpus, isolated int
	devices        map[string]int
	// stays and goes sum the requests of pods of these holds.
	stays, goes v1.ResourceList
}

// FreeIn counts what is free in the snapshot.
func FreeIn(s Snapshot) *Free {
	o := s.Ledger.Beside("", s.Ledger.Resources())
	f := &Free{
		room: s.room(o, allocation.Pod{}), ledger: s.Ledger, devices: map[string]int{},
		stays: o.Requests[allocation.Held], goes: o.Requests[allocation.Terminating],
	}
	if f.room.CPUs != nil {
		f.cpus = f.room.CPUs.Free(f.room.Taken.CPUs()).Size()
		f.isolated = f.room.CPUs.Isolated().Difference(f.room.Taken.CPUs()).Size()
	}
	return f
}

// MayHold reports whether a pod with a claim can have a place; if not, planning is in vain. ahead
// sums the requests of the claims before it.
func (f *Free) MayHold(d Demand, ahead v1.ResourceList) bool {
	if !f.fits(d.Requests, ahead) {
		return false
	}
	for name, n := range d.Least {
		if name == string(v1.ResourceCPU) {
			have := f.cpus
			if podspec.CPURules(d.Pod).Isolated {
				have = f.isolated
			}
			if f.room.CPUs != nil && have+f.ledger.Lasting(d.Pod.UID, name) < n {
				return false
			}
			continue
		}
		if f.room.IsForeign(name) {
			continue
		}
		if !f.room.Inventory.Resources[name].Connected ||
			f.count(name)+f.ledger.Lasting(d.Pod.UID, name) < n {
			return false
		}
	}
	return true
}

// fits reports whether the resources that are only counted suffice.
func (f *Free) fits(requests, ahead v1.ResourceList) bool {
	counted := f.room.Counted()
	for name, quantity := range requests {
		used := f.goes[name]
		if claimed := ahead[name]; claimed.Cmp(used) > 0 {
			used = claimed
		}
		used = used.DeepCopy()
		used.Add(f.stays[name])
		used.Add(quantity)
		counts := !podspec.IsExtended(name) || f.room.Counts(string(name))
		if have := counted[name]; counts && used.Cmp(have) > 0 {
			return false
		}
	}
	return true
}

// count returns how many devices on offer no pod has.
func (f *Free) count(resource string) int {
	n, counted := f.devices[resource]
	if counted {
		return n
	}
	r := f.room.Inventory.Resources[resource]
	claimed := f.room.Taken.ByClaims(r)
	for _, d := range r.Devices {
		if d.Offered() && !f.room.Taken.Devices()[resource].Has(d.ID) && claimed[d.ID] == "" {
			n++
		}
	}
	f.devices[resource] = n
	return n
}
