package places

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// A plugin's device and a claim's are the same by UUID or PCI address; partitions are the same as
// their whole, and not as each other.
func TestSame(t *testing.T) {
	by := func(at claim.Place) Identity {
		return OfClaim("train", claim.Device{Driver: "gpu.nvidia.com", Pool: "n", Name: "gpu-0", Place: at})
	}
	const pci = "0000:1b:00.0"
	for _, c := range []struct {
		name string
		a, b Identity
		why  string // part of it; "": not the same
	}{
		{"UUID", OfPlugin("nvidia.com/gpu", "GPU-1", ""), by(claim.Place{UUID: "GPU-1"}), "UUID GPU-1"},
		{"a replica", OfPlugin("nvidia.com/gpu", "GPU-1::3", ""), by(claim.Place{UUID: "GPU-1"}),
			"UUID GPU-1"},
		{"another UUID at one address", OfPlugin("x/y", "MIG-1", pci),
			by(claim.Place{UUID: "MIG-2", Parent: "GPU-1", PCI: pci}), ""},
		{"a partition of the plugin's", OfPlugin("nvidia.com/gpu", "GPU-1", pci),
			by(claim.Place{UUID: "MIG-1", Parent: "GPU-1", PCI: pci}), "partition of the first, GPU-1"},
		{"an address as id", OfPlugin("intel.com/vf", pci, ""), by(claim.Place{PCI: pci}),
			"PCI device " + pci},
		{"the plugin's address", OfPlugin("x/y", "card0", pci), by(claim.Place{PCI: pci, UUID: "GPU-1"}),
			"PCI device " + pci},
		{"another address", OfPlugin("intel.com/vf", pci, ""), by(claim.Place{PCI: "0000:1c:00.0"}), ""},
		{"a partition without a parent known to the plugin", OfPlugin("x/y", "card0", pci),
			by(claim.Place{PCI: pci, UUID: "MIG-1", Parent: "GPU-1"}), ""},
		{"a partition, whose whole the plugin names by UUID", OfPlugin("nvidia.com/gpu", "GPU-1", pci),
			by(claim.Place{PCI: pci, UUID: "MIG-1"}), "one is a partition of the other, the PCI device " + pci},
		{"the plugin's partition", OfPlugin("nvidia.com/mig-1g.10gb", "MIG-1", pci),
			by(claim.Place{PCI: pci, UUID: "GPU-1"}), "one is a partition of the other"},
		{"a partition of the function that the plugin hands out", OfPlugin("x/y", pci, ""),
			by(claim.Place{PCI: pci, UUID: "MIG-1", Parent: "GPU-1"}), "one is a partition"},
		{"nothing known", OfPlugin("x/y", "a", ""), by(claim.Place{}), ""},
	} {
		forth, back := Same(c.a, c.b), Same(c.b, c.a)
		if (forth == "") != (c.why == "") || (back == "") != (c.why == "") {
			t.Errorf("%s: %q, and the other way %q", c.name, forth, back)
		}
		for _, words := range []string{c.why, c.a.Words, c.b.Words} {
			if c.why != "" && !strings.Contains(forth, words) {
				t.Errorf("%s: %q lacks %q", c.name, forth, words)
			}
		}
	}
}
