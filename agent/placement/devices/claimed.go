package devices

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
)

// HealthNotReported is the health of a device whose driver does not report any.
const HealthNotReported = "NotReported"

// claimed are the devices that resource claims hand out, by driver, pool and name.
type claimed struct {
	// published holds the devices of the node's ResourceSlices.
	published []claim.Device
	drivers   []dra.Driver
	state     allocation.State
	// health says what a driver tells of a device.
	health func(claim.Device) (health v1.ResourceHealthStatus, why string)
}

// deviceName names a device of a claim.
type deviceName struct{ driver, pool, name string }

func nameOf(d claim.Device) deviceName { return deviceName{d.Driver, d.Pool, d.Name} }

// rows lists the devices. A partition that no container holds is left out: a driver may publish all those into which a
// device could be divided.
func (c claimed) rows() []Row {
	held := map[deviceName][]string{}
	shared, known := map[deviceName]bool{}, map[deviceName]bool{}
	all := slices.Clone(c.published)
	for _, d := range all {
		known[nameOf(d)] = true
	}
	for _, p := range c.state.List() {
		for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
			for _, one := range p.Containers[name].Claims() {
				for _, d := range one.Devices {
					key := nameOf(d)
					if !known[key] {
						known[key], all = true, append(all, d)
					}
					held[key] = append(held[key], p.Namespace+"/"+p.Name+"/"+name)
					shared[key] = shared[key] || d.ShareID != "" || d.Admin
				}
			}
		}
	}
	parts := map[[2]string][]string{} // of a device, by driver and UUID
	for _, d := range all {
		if key := nameOf(d); d.Place.Parent != "" && len(held[key]) > 0 {
			of := [2]string{d.Driver, d.Place.Parent}
			parts[of] = append(parts[of], d.Pool+"/"+d.Name)
		}
	}
	var out []Row
	for _, d := range all {
		key := nameOf(d)
		if d.Place.Parent != "" && len(held[key]) == 0 {
			continue
		}
		row := Row{Resource: d.Driver, ID: d.Pool + "/" + d.Name, ByClaims: true, Nodes: d.Place.Nodes.String(),
			PCI: d.Place.PCI, Root: d.Place.Root, HeldBy: slices.Compact(slices.Sorted(slices.Values(held[key]))),
			shared: shared[key], part: d.Place.Parent != ""}
		if d.Place.UUID != "" {
			row.Parts = parts[[2]string{d.Driver, d.Place.UUID}]
		}
		row.Health, row.Reason = c.healthOf(d)
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// healthOf returns a device's health, and why if its driver says.
func (c claimed) healthOf(d claim.Device) (health, why string) {
	at := slices.IndexFunc(c.drivers, func(one dra.Driver) bool { return one.Name == d.Driver })
	switch {
	case at < 0 || c.drivers[at].Problem() != "":
		return string(v1.ResourceHealthStatusUnknown), ""
	case !slices.ContainsFunc(c.drivers[at].Instances, func(in dra.Instance) bool { return in.HealthService != "" }):
		return HealthNotReported, ""
	}
	said, why := c.health(d)
	return string(said), why
}

// Supplies counts for each driver the devices that no claim has, by NUMA node. Devices that several claims share are
// left out: how much of them is free the slices do not say.
func Supplies(rows []Row, nodes topology.NodeSet) (out []explain.Supply) {
	at := map[topology.NodeID]int{}
	for i, id := range nodes.IDs() {
		at[id] = i
	}
	for _, r := range rows {
		if !r.ByClaims || r.shared || r.part || r.Resource == claim.CPUDriver {
			continue
		}
		if len(out) == 0 || out[len(out)-1].Resource != r.Resource {
			s := explain.Supply{Resource: r.Resource}
			for _, id := range nodes.IDs() {
				s.Nodes = append(s.Nodes, explain.NodeSupply{Node: int(id)})
			}
			out = append(out, s)
		}
		s := &out[len(out)-1]
		if r.Health == string(v1.ResourceHealthStatusUnhealthy) {
			s.Unhealthy++
			continue
		}
		free := 0
		if len(r.HeldBy)+len(r.Parts) == 0 {
			free = 1
		}
		s.Free, s.Total = s.Free+free, s.Total+1
		on, err := topology.ParseNodeSet(r.Nodes)
		if err != nil || on.IsEmpty() {
			if s.Nowhere == nil {
				s.Nowhere = &explain.NodeSupply{Node: -1}
			}
			s.Nowhere.Free, s.Nowhere.Total = s.Nowhere.Free+free, s.Nowhere.Total+1
			continue
		}
		for _, id := range on.IDs() {
			if i, known := at[id]; known {
				s.Nodes[i].Free, s.Nodes[i].Total = s.Nodes[i].Free+free, s.Nodes[i].Total+1
			}
		}
	}
	return out
}
