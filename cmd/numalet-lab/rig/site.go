package rig

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Site is a machine with the resources that it offers to pods. It is immutable.
type Site struct {
	Machine *topology.Machine
	// Inventory holds the devices, all of them healthy.
	Inventory devicemanager.Inventory
	Kept
}

// Kept holds what the machine keeps from pods, and what that leaves.
type Kept struct {
	// ReservedCPUs are never given out.
	ReservedCPUs cpuset.CPUSet
	// IsolatedCPUs are given only to pods that ask for them.
	IsolatedCPUs cpuset.CPUSet
	// ReservedMemory is kept from pods if memory is placed on nodes.
	ReservedMemory memory.Amounts
	// Allocatable bounds the requests of all pods together, devices excluded.
	Allocatable v1.ResourceList
}

// under returns the site with the policy's own Kept, if it has one.
func (s *Site) under(p Policy) *Site {
	if p.Kept == nil {
		return s
	}
	own := *s
	own.Kept = *p.Kept
	return &own
}

// SiteConfig describes a machine and what a user wants to change about it.
type SiteConfig struct {
	Machine *topology.Machine
	// Devices are added to those on the machine's PCI bus: "gpu=2" (two on each node with CPUs),
	// "example.com/fpga=1@0-1" (one on each of these nodes), "example.com/roce=nic" (the PCI functions
	// of a kind under another name). An entry replaces an existing resource of its name.
	Devices []string
	// ReservedCPUs is a list of CPUs; empty: one core.
	ReservedCPUs string
	// IsolatedCPUs is a list of CPUs, "auto" for those that the kernel isolates, or "none".
	IsolatedCPUs string
	// MaxPods bounds the pods that run at a time; 0: no bound.
	MaxPods int64
}

// reservedMemory is kept from pods in bytes; on a node with little memory it is a tenth.
const reservedMemory = 1 << 30

// NewSite returns the site of a configuration.
func NewSite(cfg SiteConfig) (*Site, error) {
	m := cfg.Machine
	s := &Site{Machine: m}
	s.Inventory.Resources = pciResources(m)
	for _, text := range cfg.Devices {
		if err := s.addDevices(text); err != nil {
			return nil, fmt.Errorf("devices %q: %w", text, err)
		}
	}
	for _, r := range s.Inventory.Resources {
		slices.SortFunc(r.Devices, func(a, b *devicemanager.Device) int {
			return devicemanager.CompareIDs(a.ID, b.ID)
		})
	}
	var err error
	if err = s.keepCPUs(cfg); err != nil {
		return nil, err
	}
	kept := uint64(0)
	for _, n := range m.Nodes() {
		if n.MemoryBytes > 0 {
			kept = min(reservedMemory, n.MemoryBytes/10)
			s.ReservedMemory = memory.Amounts{n.ID: {v1.ResourceMemory: kept}}
			break
		}
	}
	s.Allocatable = nodestatus.Allocatable(m, nodestatus.Reservation{
		Reserved: v1.ResourceList{
			v1.ResourceCPU: *resource.NewQuantity(int64(s.ReservedCPUs.Size()),
				resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(kept), resource.BinarySI),
		},
		MaxPods: cmp.Or(cfg.MaxPods, math.MaxInt32),
	})
	return s, nil
}

// keepCPUs chooses the reserved and the isolated CPUs.
func (s *Site) keepCPUs(cfg SiteConfig) error {
	m := cfg.Machine
	isolated, named, err := config.ParseIsolated(cfg.IsolatedCPUs)
	if err != nil {
		return fmt.Errorf("isolated CPUs %w", err)
	}
	if !named {
		isolated = m.Isolated()
	}
	if cfg.ReservedCPUs == "" {
		// They are the same under all policies and options, so that policies can be compared.
		s.ReservedCPUs, err = cpumanager.Reserved(m, isolated,
			1000*int64(m.ThreadsPerCore()), cpumanager.Options{})
	} else if s.ReservedCPUs, err = topology.ParseCPUs(cfg.ReservedCPUs); err != nil {
		err = fmt.Errorf("reserved CPUs %q: write a list like 0-1,32: %w", cfg.ReservedCPUs, err)
	}
	if err != nil {
		return err
	}
	static, err := cpumanager.NewStatic(m, s.ReservedCPUs, cpumanager.Options{})
	if err == nil {
		static, err = static.Isolating(isolated)
	}
	if err == nil {
		s.IsolatedCPUs = static.Isolated()
	}
	return err
}

// kindOf returns the kind of a PCI function by its class; "" if pods cannot have it.
func kindOf(class string) string {
	for _, k := range []struct{ prefix, kind string }{
		{"0x03", "gpu"}, {"0x02", "nic"}, {"0x12", "accelerator"}, {"0x0b40", "coprocessor"},
	} {
		if strings.HasPrefix(class, k.prefix) {
			return k.kind
		}
	}
	return ""
}

// resourceOf returns the resource name that the vendor's device plugin uses. Only GPUs have
// generally used names.
func resourceOf(kind, vendor string) string {
	domain := map[string]string{
		"0x10de": "nvidia.com", "0x1002": "amd.com", "0x8086": "gpu.intel.com",
	}[vendor]
	if kind != "gpu" || domain == "" {
		domain = exampleDomain
	}
	return domain + "/" + kind
}

// exampleDomain is the domain of resources that the user names without one.
const exampleDomain = "example.com"

func pciResources(m *topology.Machine) map[string]devicemanager.Resource {
	out := map[string]devicemanager.Resource{}
	for _, d := range m.PCI() {
		if kind := kindOf(d.Class); kind != "" {
			addDevice(out, resourceOf(kind, d.Vendor), d.Address, d.Node)
		}
	}
	return out
}

func addDevice(all map[string]devicemanager.Resource, name, id string, at topology.NodeID) {
	r := all[name]
	r.Name, r.Connected = name, true
	d := &devicemanager.Device{ID: id, Healthy: true}
	if at != topology.NoNode {
		d.Nodes = topology.NewNodeSet(at)
	}
	r.Devices = append(r.Devices, d)
	all[name] = r
}

// maxDevices bounds the invented devices on a node.
const maxDevices = 10000

// addDevices reads one entry of SiteConfig.Devices.
func (s *Site) addDevices(text string) error {
	const form = "write RESOURCE=COUNT, RESOURCE=COUNT@NODES or RESOURCE=KIND, like gpu=2@0-3"
	name, what, ok := strings.Cut(text, "=")
	if !ok || name == "" || what == "" {
		return fmt.Errorf("not understood; %s", form)
	}
	name = s.Resource(name)
	if !podspec.IsExtended(name) {
		return fmt.Errorf("%q is not the name of an extended resource; %s", name, form)
	}
	made := map[string]devicemanager.Resource{}
	number, where, some := strings.Cut(what, "@")
	count, err := strconv.Atoi(number)
	switch {
	case err != nil:
		for _, d := range s.Machine.PCI() {
			if kindOf(d.Class) == what {
				addDevice(made, name, d.Address, d.Node)
			}
		}
		if len(made) == 0 {
			return fmt.Errorf("the machine shows no PCI device of kind %q "+
				"(gpu, nic, accelerator, coprocessor); %s", what, form)
		}
	case count < 1 || count > maxDevices:
		return fmt.Errorf("the count is 1 to %d; %s", maxDevices, form)
	default:
		nodes := s.Machine.NodesOf(s.Machine.Online())
		if some {
			if nodes, err = topology.ParseNodeSet(where); err != nil {
				return err
			}
		}
		if missing := nodes.Minus(s.Machine.NodeSet()); !missing.IsEmpty() || nodes.IsEmpty() {
			return fmt.Errorf("no node %s: the machine has the nodes %s",
				missing, s.Machine.NodeSet())
		}
		for _, at := range nodes.IDs() {
			for range count {
				addDevice(made, name,
					fmt.Sprintf("%s-%d", shortName(name), len(made[name].Devices)), at)
			}
		}
	}
	maps.Copy(s.Inventory.Resources, made)
	return nil
}

// shortName returns a resource's name without its domain.
func shortName(resource string) string {
	_, name, _ := strings.Cut(resource, "/")
	return name
}

// Resource returns the full name of a resource of the site: a name without a domain stands for the
// first one that ends in it ("gpu": "nvidia.com/gpu").
func (s *Site) Resource(name string) string {
	if isCounted(name) || strings.Contains(name, "/") {
		return name
	}
	for _, full := range s.Resources() {
		if shortName(full) == name {
			return full
		}
	}
	return exampleDomain + "/" + name
}

// isCounted reports whether the resource is CPUs, memory, huge pages or ephemeral storage.
func isCounted(name string) bool {
	return name == string(v1.ResourceCPU) || name == string(v1.ResourceMemory) ||
		strings.HasPrefix(name, v1.ResourceHugePagesPrefix) ||
		name == string(v1.ResourceEphemeralStorage)
}

// Resources returns the names of the device resources in order.
func (s *Site) Resources() []string {
	return slices.Sorted(maps.Keys(s.Inventory.Resources))
}

// capacity returns how much of a resource pods can have: millicores, bytes, devices.
func (s *Site) capacity(name string) int64 {
	if r, ok := s.Inventory.Resources[name]; ok {
		return int64(len(r.Devices))
	}
	return amountOf(v1.ResourceName(name), s.Allocatable[v1.ResourceName(name)])
}

// has reports whether the machine has any of a resource, reserved or not.
func (s *Site) has(name string) bool {
	if _, ok := s.Inventory.Resources[name]; ok {
		return true
	}
	return amountOf(v1.ResourceName(name), nodestatus.Capacity(s.Machine, 0)[v1.ResourceName(name)]) > 0
}

// amountOf returns a quantity as a number: millicores for CPUs.
func amountOf(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// perNode returns what the largest NUMA node has of a resource, in the units of capacity.
func (s *Site) perNode(name string) int64 {
	most := int64(0)
	for _, n := range s.Machine.Nodes() {
		has := int64(0)
		switch {
		case name == string(v1.ResourceCPU):
			has = 1000 * int64(s.Machine.CPUsOfNode(n.ID).Difference(s.ReservedCPUs).Size())
		case name == string(v1.ResourceMemory):
			has = int64(n.MemoryBytes)
			for _, h := range n.HugePages {
				has -= int64(h.PageBytes * h.Count)
			}
		case strings.HasPrefix(name, v1.ResourceHugePagesPrefix):
			for _, h := range n.HugePages {
				size := resource.NewQuantity(int64(h.PageBytes), resource.BinarySI)
				if v1.ResourceHugePagesPrefix+size.String() == name {
					has = int64(h.PageBytes * h.Count)
				}
			}
		default:
			for _, d := range s.Inventory.Resources[name].Devices {
				if d.Nodes.Has(n.ID) {
					has++
				}
			}
		}
		most = max(most, has)
	}
	return most
}
