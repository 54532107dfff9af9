package places

import (
	"fmt"
	"strings"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
)

// Identity tells which hardware a device is, no matter which plugin or driver hands it out.
type Identity struct {
	// Words name the device for people.
	Words string
	// PCI is its address. UUID is its UUID, and Parent that of the device of which it is a partition.
	PCI, UUID, Parent string

	whole bool // it is known to be no partition
}

// Prefixes of the UUIDs of GPUs and of partitions of them.
const wholePrefix, partPrefix = "GPU-", "MIG-"

// Known reports whether anything identifies the device.
func (i Identity) Known() bool { return i.PCI != "" || i.UUID != "" }

// Keys lists what another device may have in common that is the same hardware: two devices without a
// common key are not Same.
func (i Identity) Keys() (out []string) {
	for _, key := range []string{i.UUID, i.Parent, i.PCI} {
		if key != "" {
			out = append(out, key)
		}
	}
	return out
}

// OfPlugin identifies a device of a device plugin by its id, which may be a UUID or a PCI address,
// and by the PCI address that is known of it, "": none. Ids of replicas end in "::" and a number. Of a
// device of which none of these is known it returns the zero Identity.
func OfPlugin(resource, id, pci string) Identity {
	out := Identity{PCI: pci}
	whole, _, _ := strings.Cut(id, "::")
	if address, is := topology.ParsePCIAddress(whole); is {
		out.PCI, out.whole = address, true
	} else if strings.HasPrefix(whole, wholePrefix) || strings.HasPrefix(whole, partPrefix) {
		out.UUID = whole
	}
	if out.Known() {
		out.Words = "device " + id + " of " + resource
	}
	return out
}

// OfClaim identifies a device of a resource claim by its place. Its CDI names are no help: its driver
// makes them when it prepares the claim, and by then the device is given away.
func OfClaim(claimName string, d claim.Device) Identity {
	return Identity{
		Words: fmt.Sprintf("device %s/%s/%s of claim %s", d.Driver, d.Pool, d.Name, claimName),
		PCI:   d.Place.PCI, UUID: d.Place.UUID, Parent: d.Place.Parent,
	}
}

// Same says, for people, why two devices are the same hardware, or one is a partition of the other;
// "": they are not, as far as is known. Two partitions of one device are not the same.
func Same(a, b Identity) string {
	var what string
	switch {
	case a.UUID != "" && a.UUID == b.UUID:
		what = "both have the UUID " + a.UUID
	case a.UUID != "" && a.UUID == b.Parent:
		what = "the second is a partition of the first, " + a.UUID
	case b.UUID != "" && b.UUID == a.Parent:
		what = "the first is a partition of the second, " + b.UUID
	case a.PCI != "" && a.PCI == b.PCI && !a.partition() && !b.partition():
		what = "both are the PCI device " + a.PCI
	case a.PCI != "" && a.PCI == b.PCI && (a.partition() && b.isWhole() || b.partition() && a.isWhole()):
		what = "one is a partition of the other, the PCI device " + a.PCI
	default:
		return ""
	}
	return a.Words + " and " + b.Words + " are the same hardware: " + what
}

// partition reports whether the device is known to be a part of another one.
func (i Identity) partition() bool { return i.Parent != "" || strings.HasPrefix(i.UUID, partPrefix) }

// isWhole reports whether the device is known to be no part of another one.
func (i Identity) isWhole() bool { return i.whole || strings.HasPrefix(i.UUID, wholePrefix) }
