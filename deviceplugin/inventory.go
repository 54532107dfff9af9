package deviceplugin

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/topology"
)

// Device is one device as its plugin lists it.
type Device struct {
	ID      string
	Healthy bool
	// Cordoned: it is not given to new containers, which is people's word, not the plugin's. Who has
	// it keeps it.
	Cordoned bool
	// NoNodes: the plugin gives the device a topology that names no node. The kubelet has such a
	// device, and gives it out, but does not list it as allocatable in podresources.
	NoNodes bool
	// Nodes are the NUMA nodes that the plugin names; empty when it names none, or none that the
	// machine has.
	Nodes topology.NodeSet
}

// Offered reports whether containers that do not have the device can be given it.
func (d *Device) Offered() bool { return d.Healthy && !d.Cordoned }

// Resource is what the plugins say about one extended resource.
type Resource struct {
	Name string
	// Devices lists all devices, healthy and not, in natural order of ids (CompareIDs). Successive
	// inventories share those that have not changed: never write to them.
	Devices []*Device
	// Reasons are why devices are unhealthy, as far as the plugin says.
	Reasons Reasons
	// Generation is another one for each list that a plugin sends, and when other devices than before
	// are cordoned. When its plugin goes away the
	// devices become unhealthy, and the generation stays.
	Generation uint64
	// Connected: a plugin is connected and has sent its first list.
	Connected bool
	// Problem says, for people, why it is not connected; empty when it is. Arriving: what is
	// awaited is the first device of a plugin that has registered.
	Problem  string
	Arriving bool
	// Early says, for people, that its newest plugin registered before it could be reached, which
	// the kubelet does not forgive; empty when it did not.
	Early string
	// Complaint says, for people, what was wrong with the last list, or why it was not read and the
	// one before it counts; empty when nothing was.
	Complaint string
	Options   Options
	// Capacity and Allocatable are the numbers for the node's status. A plugin that goes away
	// keeps them for its graces. Cordoned devices are in the capacity alone.
	Capacity, Allocatable int
}

// Options say which calls a plugin wants.
type Options struct {
	// Preferred: it answers GetPreferredAllocation.
	Preferred bool
	// PreStart: it wants PreStartContainer before each start.
	PreStart bool
	// Released: whether it wants to be told which devices were released.
	Released ReleasedWish
	// Reasons: it says why devices are unhealthy.
	Reasons bool
}

// Inventory is an immutable snapshot of every resource that plugins registered, with a version
// that grows with each change. Share it freely; never write to it.
type Inventory struct {
	Version   uint64
	Resources map[string]Resource
	// Gone are resources that were in an earlier inventory of this run, by name.
	Gone []string
	// Refused says, for people, why the last plugin of a resource that wanted to register was
	// refused.
	Refused map[string]string
}

// Find is the device of that id.
func (r Resource) Find(id string) (*Device, bool) {
	at, found := lookUp(r.Devices, id)
	if !found {
		return nil, false
	}
	return r.Devices[at], true
}

// Count writes the numbers of the inventory's resources into a node's capacity and allocatable;
// resources that are gone become zero. No other entry is touched.
func (i Inventory) Count(capacity, allocatable v1.ResourceList) {
	set := func(name string, all, healthy int) {
		capacity[v1.ResourceName(name)] = *resource.NewQuantity(int64(all), resource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(healthy),
			resource.DecimalSI)
	}
	for name, r := range i.Resources {
		set(name, r.Capacity, r.Allocatable)
	}
	for _, name := range i.Gone {
		set(name, 0, 0)
	}
}

// Health is what is known of a device's health: unknown when no plugin is connected that lists it.
func (i Inventory) Health(resource, id string) v1.ResourceHealthStatus {
	r := i.Resources[resource]
	d, listed := r.Find(id)
	switch {
	case !r.Connected, !listed:
		return v1.ResourceHealthStatusUnknown
	case d.Healthy:
		return v1.ResourceHealthStatusHealthy
	}
	return v1.ResourceHealthStatusUnhealthy
}
