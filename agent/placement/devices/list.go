package devices

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// HealthAbsent is that of a cordoned device that no plugin lists. The others are those of a pod's
// status.
const HealthAbsent = "Absent"

// Row is a device of the node, or one that is cordoned.
type Row struct {
	// Resource is the plugin's resource, or the name of the driver if resource claims hand the device out.
	Resource string `json:"resource"`
	// ID is the plugin's, or the driver's pool/device.
	ID string `json:"id"`
	// ByClaims: resource claims hand it out.
	ByClaims bool `json:"byClaims,omitempty"`
	// Health is Healthy, Unhealthy, Unknown when no plugin is connected, Absent, or NotReported.
	Health string `json:"health"`
	// Reason is why it is unhealthy, if its plugin says.
	Reason string `json:"reason,omitempty"`
	// Nodes are the NUMA nodes as a list, such as 0-1; empty when the plugin names none.
	Nodes string `json:"nodes,omitempty"`
	// PCI is the address of its PCI function, Switch the upstream port of the PCIe switch above it and
	// Root its PCIe root complex, as far as they are known.
	PCI    string `json:"pci,omitempty"`
	Switch string `json:"switch,omitempty"`
	Root   string `json:"root,omitempty"`
	// HeldBy are containers as namespace/pod/container; an init container beside one that took over
	// from it.
	HeldBy []string `json:"heldBy,omitempty"`
	// ReleasedBy is the pod, as namespace/name, that had the device. No pod is given it before its plugin
	// has confirmed the release, or has not answered for 30 s.
	ReleasedBy string `json:"releasedBy,omitempty"`
	// Claimed names the device of a resource claim that is the same hardware, and the pod that has it.
	Claimed string  `json:"claimed,omitempty"`
	Cordon  *Cordon `json:"cordon,omitempty"`
	// Parts are the partitions of it that claims have.
	Parts []string `json:"parts,omitempty"`
	// Failures are by container.
	Failures []Failure `json:"failures,omitempty"`

	// shared: several claims may have it. part: it is a partition of another device.
	shared, part bool
}

// Cordon says since when a device is cordoned, and why.
type Cordon struct {
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// device is a device of a resource.
type device struct{ resource, id string }

// List is the devices that plugins list, and those that are cordoned and that none lists, by resource
// and in natural order of ids.
func List(m *topology.Machine, inventory devicemanager.Inventory, state allocation.State,
	cordons []cordon.Cordon) []Row {
	all := allocation.HoldingsOf(state.List()...)
	held, released := holders(state), releasers(state)
	said := map[device]*Cordon{}
	for _, c := range cordons {
		said[device{c.Resource, c.ID}] = &Cordon{c.Reason, c.Since}
	}
	out := []Row{}
	for _, name := range slices.Sorted(maps.Keys(inventory.Resources)) {
		r := inventory.Resources[name]
		r.Name = name
		claimed := all.ByClaims(r)
		for _, d := range r.Devices {
			key := device{name, d.ID}
			row := Row{
				Resource: name, ID: d.ID, Health: string(inventory.Health(name, d.ID)),
				Nodes:  d.Nodes.String(),
				HeldBy: held[key], ReleasedBy: released[key], Cordon: said[key],
				Reason: r.Reasons.ByID[d.ID], Claimed: claimed[d.ID], PCI: r.PCIAddress(d.ID),
			}
			if pci, here := r.PCI(m, d.ID); here {
				row.Switch, row.Root = pci.Switch(), pci.Root()
			}
			delete(said, key)
			out = append(out, row)
		}
	}
	for key, c := range said {
		out = append(out, Row{
			Resource: key.resource, ID: key.id, Health: HealthAbsent, HeldBy: held[key],
			ReleasedBy: released[key], Cordon: c,
		})
	}
	slices.SortStableFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), devicemanager.CompareIDs(a.ID, b.ID))
	})
	return out
}

// releasers names the pods that had devices of whose release plugins are still to hear.
func releasers(state allocation.State) map[device]string {
	out := map[device]string{}
	for _, o := range state.PendingReleases {
		for _, id := range o.IDs {
			out[device{o.Resource, id}] = o.Namespace + "/" + o.Name
		}
	}
	return out
}

// holders names the containers that hold devices.
func holders(state allocation.State) map[device][]string {
	out := map[device][]string{}
	for _, p := range state.Pods {
		for name, c := range p.Containers {
			for _, set := range c.Devices() {
				for _, id := range set.IDs {
					key := device{set.Resource, id}
					out[key] = append(out[key], p.Namespace+"/"+p.Name+"/"+name)
				}
			}
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}
