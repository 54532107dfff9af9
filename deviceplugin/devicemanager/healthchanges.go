package devicemanager

// healthSaid holds the last lists of connected plugins, by resource. An absent plugin adds nothing:
// the list of the next one is compared with its last.
type healthSaid map[string]Resource

// follow calls changed for each served resource with a new list, with the devices whose health has
// changed. A device's first health is no change.
func (h healthSaid) follow(now Inventory, changed func(resource string, devices []*Device)) {
	for name, r := range now.Resources {
		before := h[name]
		if !r.Connected || before.Generation == r.Generation {
			continue
		}
		changed(name, healthChanges(before.Devices, r.Devices))
		h[name] = r
	}
	for _, name := range now.Gone {
		delete(h, name)
	}
}

// healthChanges returns the devices whose health differs between two lists in natural order.
func healthChanges(was, now []*Device) (out []*Device) {
	i := 0
	for _, d := range now {
		for i < len(was) && was[i] != d && CompareIDs(was[i].ID, d.ID) < 0 {
			i++
		}
		if i == len(was) {
			break
		}
		switch before := was[i]; {
		case before == d:
			i++
		case before.ID == d.ID && before.Healthy != d.Healthy:
			out = append(out, d)
		}
	}
	return out
}
