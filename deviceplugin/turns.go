package deviceplugin

// healthSaid is what plugins said last of their devices, by resource. A plugin that is away says
// nothing: what the next one says is compared with what it said before.
type healthSaid map[string]Resource

// follow hands on, for each resource that a plugin serves, how many devices became healthy and how
// many unhealthy. A device's first health is no change.
func (h healthSaid) follow(now Inventory, turned func(resource string, healthy, unhealthy int)) {
	for name, r := range now.Resources {
		before := h[name]
		if !r.Connected || before.Generation == r.Generation {
			continue
		}
		healthy, unhealthy := turns(before.Devices, r.Devices)
		turned(name, healthy, unhealthy)
		h[name] = r
	}
	for _, name := range now.Gone {
		delete(h, name)
	}
}

// turns compares two lists in natural order.
func turns(was, now []*Device) (healthy, unhealthy int) {
	if len(was) == 0 {
		return 0, 0
	}
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
			healthy += count(d.Healthy)
			unhealthy += count(!d.Healthy)
		}
	}
	return healthy, unhealthy
}
