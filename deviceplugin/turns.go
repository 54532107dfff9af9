package deviceplugin

// healthSaid is what plugins said last of their devices, by resource. A plugin that is away says
// nothing: what the next one says is compared with what it said before.
type healthSaid map[string]Resource

// follow hands on, for each resource that a plugin serves, the devices whose health has changed. A
// device's first health is no change.
func (h healthSaid) follow(now Inventory, turned func(resource string, devices []*Device)) {
	for name, r := range now.Resources {
		before := h[name]
		if !r.Connected || before.Generation == r.Generation {
			continue
		}
		turned(name, turns(before.Devices, r.Devices))
		h[name] = r
	}
	for _, name := range now.Gone {
		delete(h, name)
	}
}

// turns are the devices of a list that had another health in the list before, both in natural order.
func turns(was, now []*Device) (out []*Device) {
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
