package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PCIDevice is one PCI function.
type PCIDevice struct {
	// Address is domain:bus:device.function, "0000:3b:00.0".
	Address string `json:"address"`
	// Path is the device's way from its root complex, as in sysfs: the root complex, the root port
	// and the bridges below it, "pci0000:3a/0000:3a:00.0/0000:3b:00.0"; "": unknown.
	Path string `json:"path,omitempty"`
	// Class, Vendor and Device are the ids in the form of sysfs ("0x030200", "0x10de", "0x2330").
	Class  string `json:"class,omitempty"`
	Vendor string `json:"vendor,omitempty"`
	Device string `json:"device,omitempty"`
	// Name is for people, if a PCI database knows it.
	Name string `json:"name,omitempty"`
	// Node is NoNode if the firmware does not say.
	Node NodeID `json:"node"`
}

// Root returns the root complex, "pci0000:3a"; "": unknown.
func (d PCIDevice) Root() string {
	root, _, _ := strings.Cut(d.Path, "/")
	return root
}

// Switch returns the lowest bridge above the device's own port that several devices can share: the
// upstream port of its switch; "": it is under no switch, or that is unknown.
func (d PCIDevice) Switch() string {
	if way := strings.Split(d.Path, "/"); len(way) > pathSwitch {
		return way[len(way)-2]
	}
	return ""
}

// Segments of a Path: devices that share more have a switch in common.
const (
	pathRoot   = iota + 1 // the root complex
	pathPort              // and the root port
	pathSwitch            // and the upstream port of a switch
)

// Closeness says what is the closest that two PCI devices have in common. A greater one is closer.
type Closeness int

// Each constant names what two devices have in common. nvidia-smi topo calls them SYS, NODE, PHB, and PIX
// or PXB for the last two; it counts bridges instead of naming the root port.
const (
	// Apart: nothing, or nothing is known.
	Apart Closeness = iota
	// SameNode: the NUMA node. Traffic crosses the CPU's fabric between its root complexes.
	SameNode
	// SameRoot: the PCIe root complex. Traffic goes through the CPU.
	SameRoot
	// SameRootPort: a port of the root complex, as the functions of one card.
	SameRootPort
	// SameSwitch: a PCIe switch. Traffic between them does not reach the CPU.
	SameSwitch
)

// String returns the words for people.
func (c Closeness) String() string {
	return [...]string{"other NUMA node", "same NUMA node", "same PCIe root complex",
		"same PCIe root port", "same PCIe switch"}[c]
}

// Levels is the number of kinds of closeness besides Apart.
const Levels = int(SameSwitch)

// Shared returns what other devices have in common with this one if they are so close, the closest
// first: the way to the switch, to the root port, the root complex, the node; "": it has none.
func (d PCIDevice) Shared() (out [Levels]string) {
	way := strings.SplitN(d.Path, "/", pathSwitch+1)
	for level, segments := range [...]int{pathSwitch, pathPort, pathRoot} {
		if d.Path != "" && len(way) >= segments {
			out[level] = strings.Join(way[:segments], "/")
		}
	}
	if d.Node != NoNode {
		out[Levels-1] = NewNodeSet(d.Node).String()
	}
	return out
}

// ClosenessOf compares two devices. It is symmetric; a device is closest to itself.
func ClosenessOf(a, b PCIDevice) Closeness {
	if a.Address != "" && a.Address == b.Address {
		return SameSwitch
	}
	other := b.Shared()
	for level, shared := range a.Shared() {
		if shared != "" && shared == other[level] {
			return SameSwitch - Closeness(level)
		}
	}
	return Apart
}

// PCI lists the PCI functions by address.
func (m *Machine) PCI() []PCIDevice { return slices.Clone(m.pci) }

// PCIDevice returns the function with an address.
func (m *Machine) PCIDevice(address string) (PCIDevice, bool) {
	at, found := slices.BinarySearchFunc(m.pci, address, func(d PCIDevice, address string) int {
		return strings.Compare(d.Address, address)
	})
	if !found {
		return PCIDevice{}, false
	}
	return m.pci[at], true
}

// NodesOfRoot returns the NUMA nodes of the devices of a PCIe root complex, "pci0000:3a".
func (m *Machine) NodesOfRoot(root string) NodeSet {
	var b nodeBits
	for _, d := range m.pci {
		if d.Node != NoNode && root != "" && d.Root() == root {
			b.set(int(d.Node))
		}
	}
	return b.freeze()
}

// ParsePCIAddress returns a PCI address in the form of sysfs. It also reads that of NVML,
// "00000000:3B:00.0", and one without a domain, "3b:00.0".
func ParsePCIAddress(text string) (string, bool) {
	parts := strings.Split(text, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return "", false
	}
	slot, function, dotted := strings.Cut(parts[2], ".")
	var n [4]uint64
	for i, part := range []struct {
		text   string
		digits int
		most   uint64
	}{{parts[0], 8, 1<<32 - 1}, {parts[1], 2, 0xff}, {slot, 2, 0x1f}, {function, 1, 7}} {
		v, err := strconv.ParseUint(part.text, 16, 32)
		if err != nil || len(part.text) > part.digits || v > part.most ||
			strings.HasPrefix(part.text, "+") {
			return "", false
		}
		n[i] = v
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3]), dotted
}

// ValidPCIPath reports whether a path has the form of sysfs: a root complex, then addresses.
func ValidPCIPath(path string) bool {
	for i, segment := range strings.Split(path, "/") {
		address := segment
		if root, ok := strings.CutPrefix(segment, "pci"); ok {
			address = root + ":00.0"
		} else if i == 0 {
			return false
		}
		if _, ok := ParsePCIAddress(address); !ok {
			return false
		}
	}
	return true
}
