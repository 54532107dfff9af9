package places

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// Device is a device of a ResourceSlice.
type Device struct {
	Driver, Pool, Name string
	// Attributes are never written to.
	Attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute
	Capacity   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity
}

// String returns driver/pool/name.
func (d Device) String() string { return d.Driver + "/" + d.Pool + "/" + d.Name }

// Find returns where the device is. Nodes are those that the driver names, else that of the PCI
// device, else those of the PCIe roots. wrong says, for people, which attributes cannot be right;
// these count as missing.
func (t Table) Find(m *topology.Machine, d Device) (at claim.Place, wrong []string) {
	f := finder{machine: m, device: d, said: t.of(d)}
	at.UUID, at.Parent = f.text(UUID), f.text(Parent)
	at.PCI, at.Nodes = f.address(), f.nodes()
	f.amounts(&at)
	roots := f.roots()
	if pci, here := m.PCIDevice(at.PCI); here {
		if root := pci.Root(); root != "" {
			roots = []string{root}
		}
		if at.Nodes.IsEmpty() && pci.Node != topology.NoNode {
			at.Nodes = topology.NewNodeSet(pci.Node)
		}
	}
	if len(roots) == 1 {
		at.Root = roots[0]
	}
	if at.Nodes.IsEmpty() {
		for _, root := range roots {
			at.Nodes = at.Nodes.Union(m.NodesOfRoot(root))
		}
	}
	return at, f.wrong
}

// UUIDOf returns the device's UUID; "": unknown.
func (t Table) UUIDOf(d Device) string {
	f := finder{device: d, said: t.of(d)}
	return f.text(UUID)
}

// PCI returns what is known of the PCI function at a place, to compare with others.
func PCI(m *topology.Machine, at claim.Place) topology.PCIDevice {
	if d, here := m.PCIDevice(at.PCI); here {
		return d
	}
	d := topology.PCIDevice{Address: at.PCI, Path: at.Root, Node: topology.NoNode}
	if ids := at.Nodes.IDs(); len(ids) == 1 {
		d.Node = ids[0]
	}
	return d
}

// finder reads the attributes of one device.
type finder struct {
	machine *topology.Machine
	device  Device
	said    map[Meaning][]attribute
	wrong   []string
}

func (f *finder) complain(of attribute, value any, why string) {
	f.wrong = append(f.wrong, fmt.Sprintf("device %s: its attribute %s is %s, and %s", f.device,
		of.name, oneline.Of(fmt.Sprint(value)), why))
}

// text returns the first string of a meaning.
func (f *finder) text(of Meaning) string {
	for _, a := range f.said[of] {
		for _, text := range a.texts() {
			if text != "" {
				return text
			}
		}
	}
	return ""
}

func (f *finder) address() string {
	for _, a := range f.said[Address] {
		for _, text := range a.texts() {
			if address, ok := topology.ParsePCIAddress(text); ok {
				return address
			}
			f.complain(a, fmt.Sprintf("%q", text), "that is no PCI address")
		}
	}
	return ""
}

func (f *finder) roots() (out []string) {
	for _, a := range f.said[Root] {
		for _, text := range a.texts() {
			if !topology.ValidPCIPath(text) {
				f.complain(a, fmt.Sprintf("%q", text), "that is no PCIe root")
				continue
			}
			out = append(out, topology.PCIDevice{Path: text}.Root())
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// unknownNode stands in sysfs where firmware does not say.
const unknownNode = -1

// nodes returns the nodes of the first attribute that names one of the machine's.
func (f *finder) nodes() topology.NodeSet {
	for _, meaning := range []Meaning{Node, Nodes} {
		for _, a := range f.said[meaning] {
			ids := a.ints()
			if meaning == Node && len(ids) > 1 {
				ids = ids[:1] // the others are as near as any of the socket
			}
			var out topology.NodeSet
			for _, id := range ids {
				switch {
				case id == unknownNode:
				case !f.machine.NodeSet().Has(topology.NodeID(id)):
					f.complain(a, id, "the machine has the nodes "+f.machine.NodeSet().String())
				default:
					out = out.Union(topology.NewNodeSet(topology.NodeID(id)))
				}
			}
			if !out.IsEmpty() {
				return out
			}
		}
	}
	return topology.NodeSet{}
}
