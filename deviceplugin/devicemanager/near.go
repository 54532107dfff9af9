package devicemanager

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology"
)

// Neighbours are the PCI devices that the chosen devices are to be close to. Devices pair: the first
// chosen one goes with one neighbour, the next with another, so that n GPUs get n NICs under the same
// switches. The zero value has none.
type Neighbours struct {
	// Machine has the PCI devices; nil: where devices are is not known.
	Machine *topology.Machine
	// Has lists what the container has already, of claims or of other resources. More devices than
	// these go with the same ones again.
	Has []topology.PCIDevice
	// Gets lists what the container may get next, and Next how many of them. It counts if there is
	// nothing in Has.
	Gets []topology.PCIDevice
	Next int
}

// PCIAddress returns the address of a device: the one that its plugin names, or its id, if that is
// one, as those of the SR-IOV plugin are; "": unknown.
func (r Resource) PCIAddress(id string) string {
	if address, named := r.Addresses[id]; named {
		return address
	}
	address, _ := topology.ParsePCIAddress(id)
	return address
}

// PCI returns the PCI function of a device. It is false if the machine has none.
func (r Resource) PCI(m *topology.Machine, id string) (topology.PCIDevice, bool) {
	address := r.PCIAddress(id)
	if m == nil || address == "" {
		return topology.PCIDevice{}, false
	}
	return m.PCIDevice(address)
}

// located reports whether the PCI functions of the resource's devices are known: the plugin names
// them, or the first id is an address.
func (r Resource) located(m *topology.Machine) bool {
	return m != nil && len(r.Devices) > 0 &&
		(len(r.Addresses) > 0 || r.PCIAddress(r.Devices[0].ID) != "")
}

// Free lists the PCI functions of the devices that a container could get within a hint.
func (r Resource) Free(m *topology.Machine, taken sets.Set[string],
	hint topology.Hint) (out []topology.PCIDevice) {
	if !r.located(m) {
		return nil
	}
	for _, d := range r.Devices {
		if !d.Offered() || taken.Has(d.ID) ||
			!hint.Any && d.Nodes.Intersect(hint.Nodes).IsEmpty() {
			continue
		}
		if pci, known := r.PCI(m, d.ID); known {
			out = append(out, pci)
		}
	}
	return out
}

// levels are the kinds of closeness that make a pair, the closest first.
const levels = topology.Levels

// merit counts the pairs of a choice by closeness, the closest first; then, in the same way, those
// with neighbours that have another pair already.
type merit [2 * levels]int

// compare returns a negative number if m has fewer close pairs than o.
func (m merit) compare(o merit) int { return slices.Compare(m[:], o[:]) }

// pairing pairs open devices with neighbours. Closeness is a tree: what shares a switch shares the
// root port too. So taking the closest pairs first gives the most pairs of each closeness.
type pairing struct {
	// most is the number of pairs to make; 0: there is nothing to be close to.
	most int
	// again: after each neighbour has a pair, all of them may have another one.
	again      bool
	neighbours []topology.PCIDevice
	// device returns the PCI function of an open device.
	device func(open int) (topology.PCIDevice, bool)
}

// pairing returns how the devices of a request pair.
func (req Request) pairing(devices []*Device) pairing {
	near := req.Near
	p := pairing{device: func(open int) (topology.PCIDevice, bool) {
		return req.Resource.PCI(near.Machine, devices[open].ID)
	}}
	switch {
	case !req.Resource.located(near.Machine):
	case len(near.Has) > 0:
		p.most, p.again, p.neighbours = req.N, true, near.Has
	case len(near.Gets) > 0:
		p.most, p.neighbours = min(req.N, near.Next), near.Gets
	}
	return p
}

// pairs returns the devices that get a pair, of up to most of them, best first, and the merit.
func (p pairing) pairs(open []int, most int) (paired []int, m merit) {
	if most = min(most, p.most); most <= 0 {
		return nil, m
	}
	left := newPartners(p.neighbours)
	at := make(map[int][levels]string, len(open))
	for _, d := range open {
		if pci, known := p.device(d); known {
			at[d] = pci.Shared()
		}
	}
	used := sets.New[int]()
	for round, progress := 0, true; progress; round = levels {
		progress = false
		for level := range levels {
			for _, d := range open {
				if len(paired) == most {
					return paired, m
				}
				place, known := at[d]
				if !known || used.Has(d) || !left.take(level, place[level]) {
					continue
				}
				used.Insert(d)
				paired = append(paired, d)
				m[round+level]++
				progress = true
			}
		}
		if progress = progress && p.again; progress {
			left = newPartners(p.neighbours)
		}
	}
	return paired, m
}

// partners holds neighbours without a pair, by level and key.
type partners struct {
	by   [levels]map[string][]int
	gone sets.Set[int]
}

func newPartners(all []topology.PCIDevice) partners {
	p := partners{gone: sets.New[int]()}
	for level := range levels {
		p.by[level] = map[string][]int{}
	}
	for i, d := range all {
		for level, key := range d.Shared() {
			if key != "" {
				p.by[level][key] = append(p.by[level][key], i)
			}
		}
	}
	return p
}

// take takes a neighbour with that key, if there is one left.
func (p partners) take(level int, key string) bool {
	for left := p.by[level][key]; len(left) > 0; left = left[1:] {
		if i := left[0]; !p.gone.Has(i) {
			p.gone.Insert(i)
			p.by[level][key] = left[1:]
			return true
		}
	}
	delete(p.by[level], key)
	return false
}

// pair puts the open devices that get a pair first. If all of the missing ones get one, devices
// that cannot be as close are not open any more.
func (s *narrowed) pair() {
	paired, best := s.close.pairs(s.open, s.missing())
	s.best = best
	if len(paired) == 0 {
		return
	}
	worst := 0
	for i, n := range best {
		if n > 0 {
			worst = max(worst, i%levels)
		}
	}
	first := sets.New(paired...)
	reach := newPartners(s.close.neighbours)
	rest := make([]int, 0, len(s.open))
	for _, d := range s.open {
		if first.Has(d) || len(paired) == s.missing() && !s.reaches(reach, d, worst) {
			continue
		}
		rest = append(rest, d)
	}
	s.open = append(paired, rest...)
}

// reaches reports whether some neighbour is as close to a device as the worst pair.
func (s *narrowed) reaches(p partners, d, worst int) bool {
	pci, known := s.close.device(d)
	if !known {
		return false
	}
	for level, key := range pci.Shared() {
		if level <= worst && len(p.by[level][key]) > 0 && key != "" {
			return true
		}
	}
	return false
}

// asClose reports whether a choice of the missing devices has pairs as close as the best one.
func (s *narrowed) asClose(choice []int) bool {
	if s.close.most == 0 {
		return true
	}
	_, m := s.close.pairs(choice, s.missing())
	return m.compare(s.best) >= 0
}
