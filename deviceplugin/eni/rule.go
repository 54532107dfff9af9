package eni

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/numalet/numalet/topology/podspec"
)

// Rule chooses interfaces for a resource. An interface matches if it meets each given field with
// any of the field's values.
type Rule struct {
	Resource string `json:"resource"`
	// Drivers match the function or the interface: ena, mlx5_core, virtio_net.
	Drivers []string `json:"drivers,omitempty"`
	// Vendors are PCI ids: 15b3 or 15b3:101e.
	Vendors []string `json:"vendors,omitempty"`
	// MACs and Names are patterns: 02:1a:*, eth[1-9].
	MACs  []string `json:"macs,omitempty"`
	Names []string `json:"names,omitempty"`
	// Subnets contain one of the interface's addresses: 10.0.16.0/20.
	Subnets []string `json:"subnets,omitempty"`
	// VirtualOf names physical functions, by PCI address or interface name, whose virtual functions
	// match. "*" is any.
	VirtualOf []string `json:"virtualOf,omitempty"`
	// RDMA: only interfaces with RDMA devices, which containers get too.
	RDMA bool `json:"rdma,omitempty"`
}

// check returns the first fault of a rule.
func (r Rule) check() error {
	if err := checkResource(r.Resource); err != nil {
		return err
	}
	if len(r.Drivers)+len(r.Vendors)+len(r.MACs)+len(r.Names)+len(r.Subnets)+len(r.VirtualOf) == 0 &&
		!r.RDMA {
		return fmt.Errorf("resource %s: its rule selects no interfaces: give drivers, "+
			"vendors, MACs, names, subnets, functions or RDMA", r.Resource)
	}
	for _, pattern := range slices.Concat(r.MACs, r.Names) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("resource %s: %q is no pattern: write one such as eth[1-9] or "+
				"02:1a:*", r.Resource, pattern)
		}
	}
	for _, subnet := range r.Subnets {
		if _, err := netip.ParsePrefix(subnet); err != nil {
			return fmt.Errorf("resource %s: subnet %q: write one such as 10.0.16.0/20", r.Resource,
				subnet)
		}
	}
	return nil
}

// checkResource checks the name of an extended resource.
func checkResource(name string) error {
	if !podspec.IsExtended(name) {
		return fmt.Errorf("resource %q: write the name of an extended resource, such as "+
			"example.com/eni", name)
	}
	return nil
}

// matches reports whether the interface matches. functions maps physical functions to their
// interfaces' names.
func (r Rule) matches(i Interface, functions map[string]string) bool {
	byName := len(r.Names)+len(r.MACs) > 0
	if i.Hardware.PCI == "" && !byName {
		return false // software makes and removes interfaces for its own purposes
	}
	return meets(r.Drivers, func(d string) bool { return slices.Contains(i.Hardware.Drivers, d) }) &&
		meets(r.Vendors, i.Hardware.vendor) &&
		meets(r.MACs, func(p string) bool {
			return like(strings.ToLower(p), i.Link.State.MAC) ||
				like(strings.ToLower(p), i.Link.Permanent)
		}) &&
		meets(r.Names, func(p string) bool { return like(p, i.Link.State.Name) }) &&
		meets(r.Subnets, i.Link.State.within) &&
		meets(r.VirtualOf, func(f string) bool {
			of := i.Hardware.Physical
			return of != "" && (f == "*" || f == of || f == functions[of])
		}) &&
		(!r.RDMA || len(i.Hardware.RDMA) > 0)
}

// meets reports whether one of the values is right, or there are none.
func meets(values []string, right func(string) bool) bool {
	return len(values) == 0 || slices.ContainsFunc(values, right)
}

func like(pattern, text string) bool {
	matched, err := path.Match(pattern, text)
	return matched && err == nil
}

func (h Hardware) vendor(want string) bool {
	vendor, device, both := strings.Cut(strings.ToLower(want), ":")
	return h.Vendor == strings.TrimPrefix(vendor, "0x") &&
		(!both || h.Device == strings.TrimPrefix(device, "0x"))
}

func (s State) within(subnet string) bool {
	prefix, err := netip.ParsePrefix(subnet)
	return err == nil && slices.ContainsFunc(s.Addresses, func(a netip.Prefix) bool {
		return prefix.Contains(a.Addr())
	})
}
