package deviceplugin

import (
	"slices"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// oddities are the parts of a list that were left out.
type oddities struct {
	// Duplicates counts devices whose id comes again later in the list: the last one counts.
	Duplicates int
	// Unnamed counts devices without an id.
	Unnamed int
	// UnknownNode is one of the NUMA nodes that the machine does not have, NoNode when there are
	// none such.
	UnknownNode topology.NodeID
}

// devicesOf reads a list of devices, in natural order of ids.
func devicesOf(list []*v1beta1.Device, nodes topology.NodeSet) ([]Device, oddities) {
	devices := make([]Device, 0, len(list))
	odd := oddities{UnknownNode: topology.NoNode}
	for _, d := range list {
		if d.GetID() == "" {
			odd.Unnamed++
			continue
		}
		device := Device{ID: d.GetID(), Healthy: d.GetHealth() == v1beta1.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			id := topology.NodeID(n.GetID())
			if !nodes.Has(id) {
				odd.UnknownNode = id
				continue
			}
			device.Nodes = device.Nodes.Union(topology.NewNodeSet(id))
		}
		devices = append(devices, device)
	}
	given := len(devices)
	devices = inOrder(devices)
	odd.Duplicates = given - len(devices)
	return devices, odd
}

// inOrder sorts devices by id, the last of equal ids only. Lists are long and mostly in order
// already, so that case costs one pass.
func inOrder(devices []Device) []Device {
	ordered := true
	for i := 1; i < len(devices) && ordered; i++ {
		ordered = CompareIDs(devices[i-1].ID, devices[i].ID) < 0
	}
	if ordered {
		return devices
	}
	last := make(map[string]int, len(devices))
	for i, d := range devices {
		last[d.ID] = i
	}
	out := make([]Device, 0, len(last))
	for i, d := range devices {
		if last[d.ID] == i {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return CompareIDs(a.ID, b.ID) })
	return out
}

// unhealthy is devices, none of them healthy.
func unhealthy(devices []Device) []Device {
	out := slices.Clone(devices)
	for i := range out {
		out[i].Healthy = false
	}
	return out
}
