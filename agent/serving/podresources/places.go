package podresources

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// places says where the pod's devices are, each once, as far as that is known: those of plugins in the
// PCI tree, those of claims also by node, which the pod's resources do not tell.
func (s Snapshot) places(held allocation.Pod) (out []*watchv1.Place) {
	for _, c := range held.Containers {
		for _, set := range c.Devices() {
			for i, id := range set.IDs {
				address := cmp.Or(set.AddressOf(i), s.Inventory.Resources[set.Resource].PCIAddress(id))
				at := placeOf(s.Machine, address, "", set.NodesOf(i))
				at.ResourceName, at.DeviceId = set.Resource, id
				out = append(out, at)
			}
		}
		for _, one := range c.Claims() {
			for _, d := range one.Devices {
				at := placeOf(s.Machine, d.Place.PCI, d.Place.Root, d.Place.Nodes)
				at.Driver, at.Pool, at.DeviceId = d.Driver, d.Pool, d.Name
				out = append(out, at)
			}
		}
	}
	out = slices.DeleteFunc(out, func(p *watchv1.Place) bool {
		return p.PciAddress == "" && p.PcieRoot == "" && (p.Driver == "" || len(p.NumaNodes) == 0)
	})
	slices.SortFunc(out, comparePlaces)
	return slices.CompactFunc(out, func(a, b *watchv1.Place) bool { return comparePlaces(a, b) == 0 })
}

func comparePlaces(a, b *watchv1.Place) int {
	return cmp.Or(cmp.Compare(a.ResourceName, b.ResourceName), cmp.Compare(a.Driver, b.Driver),
		cmp.Compare(a.Pool, b.Pool), devicemanager.CompareIDs(a.DeviceId, b.DeviceId))
}

func samePlaces(a, b []*watchv1.Place) bool {
	return slices.EqualFunc(a, b, func(x, y *watchv1.Place) bool { return proto.Equal(x, y) })
}

// placesOf says where devices of a resource are in the PCI tree, as far as that is known.
func placesOf(m *topology.Machine, r devicemanager.Resource, devices []*devicemanager.Device) (
	out []*watchv1.Place) {
	for _, d := range devices {
		if address := r.PCIAddress(d.ID); address != "" {
			at := placeOf(m, address, "", d.Nodes)
			at.ResourceName, at.DeviceId = r.Name, d.ID
			out = append(out, at)
		}
	}
	return out
}

// placeOf returns a place without the device; root counts if the machine lacks the function.
func placeOf(m *topology.Machine, address, root string, nodes topology.NodeSet) *watchv1.Place {
	out := &watchv1.Place{PciAddress: address, PcieRoot: root}
	for _, id := range nodes.IDs() {
		out.NumaNodes = append(out.NumaNodes, int64(id))
	}
	if m == nil {
		return out
	}
	if pci, here := m.PCIDevice(address); here {
		out.PcieSwitch, out.PcieRoot = pci.Switch(), cmp.Or(pci.Root(), root)
	}
	return out
}
