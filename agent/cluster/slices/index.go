package slices

import (
	"cmp"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/numalet/numalet/deviceplugin/dra/places"
)

// poolID names a pool.
type poolID struct{ driver, name string }

// pool is a pool of devices as it counts. A nil pool has none.
type pool struct {
	devices map[string]*resourcev1.Device
	// consumers lists the devices that share a counter set, by the set's name: partitions of one
	// device, and the device itself; see KEP-4815.
	consumers map[string][]*resourcev1.Device
}

func (p *pool) find(name string) (*resourcev1.Device, bool) {
	if p == nil {
		return nil, false
	}
	d, ok := p.devices[name]
	return d, ok
}

func (p *pool) sorted() []*resourcev1.Device {
	out := make([]*resourcev1.Device, 0, len(p.devices))
	for _, name := range slices.Sorted(maps.Keys(p.devices)) {
		out = append(out, p.devices[name])
	}
	return out
}

// index holds the devices that count. It is never written to once it is made.
type index struct {
	pools map[poolID]*pool
	// uuids has the devices by driver and UUID.
	uuids map[[2]string]located
	// dropped counts the devices beyond mostDevices.
	dropped int
}

func (ix *index) order() []poolID {
	return slices.SortedFunc(maps.Keys(ix.pools), func(a, b poolID) int {
		return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name))
	})
}

// newIndex makes the index of all slices of the node; before is the one that counted until now.
func newIndex(all []*resourcev1.ResourceSlice, before *index, attributes places.Table) *index {
	slices.SortFunc(all, func(a, b *resourcev1.ResourceSlice) int {
		return cmp.Compare(a.Name, b.Name)
	})
	newest := map[poolID][]*resourcev1.ResourceSlice{}
	for _, one := range all {
		id := poolID{one.Spec.Driver, one.Spec.Pool.Name}
		others := newest[id]
		switch {
		case len(others) == 0 || one.Spec.Pool.Generation > others[0].Spec.Pool.Generation:
			newest[id] = []*resourcev1.ResourceSlice{one}
		case one.Spec.Pool.Generation == others[0].Spec.Pool.Generation:
			newest[id] = append(others, one)
		}
	}
	ix := &index{pools: map[poolID]*pool{}, uuids: map[[2]string]located{}}
	for id := range newest {
		ix.pools[id] = nil
	}
	left := mostDevices
	for _, id := range ix.order() {
		of := newest[id]
		p := &pool{devices: map[string]*resourcev1.Device{},
			consumers: map[string][]*resourcev1.Device{}}
		for _, one := range of {
			for i := range one.Spec.Devices {
				ix.dropped += p.add(&one.Spec.Devices[i], &left)
			}
		}
		if was := before.pools[id]; int64(len(of)) < of[0].Spec.Pool.ResourceSliceCount && was != nil {
			for _, d := range was.sorted() {
				ix.dropped += p.add(d, &left)
			}
		}
		ix.pools[id] = p
		for _, d := range p.devices {
			if uuid := attributes.UUIDOf(deviceOf(id, d)); uuid != "" {
				ix.uuids[[2]string{id.driver, uuid}] = located{id, d}
			}
		}
	}
	return ix
}

// add adds a device unless the pool has one of that name. It returns the number of devices that
// found no room.
func (p *pool) add(d *resourcev1.Device, left *int) (dropped int) {
	if _, there := p.devices[d.Name]; there {
		return 0
	}
	if *left == 0 {
		return 1
	}
	*left--
	p.devices[d.Name] = d
	for _, from := range d.ConsumesCounters {
		p.consumers[from.CounterSet] = append(p.consumers[from.CounterSet], d)
	}
	return 0
}

// located is a device with its pool.
type located struct {
	in     poolID
	device *resourcev1.Device
}

// mostConsumers bounds the devices of a counter set that are looked at for one of them.
const mostConsumers = 128

// wholes lists the devices that tell where a partition is: the one of its driver with the UUID
// parent, or else those that share a counter set with it.
func (ix *index) wholes(of poolID, d *resourcev1.Device, parent string) (out []located) {
	if whole, there := ix.uuids[[2]string{of.driver, parent}]; there && parent != "" {
		return []located{whole}
	}
	for _, from := range d.ConsumesCounters {
		others := ix.pools[of].consumers[from.CounterSet]
		for _, other := range others[:min(len(others), mostConsumers)] {
			if other.Name != d.Name {
				out = append(out, located{of, other})
			}
		}
	}
	return out
}
