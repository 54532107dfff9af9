package devicemanager

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/deviceplugin/recall"
)

// Device is one device as its plugin lists it.
type Device = recall.Device

// Resource holds what the plugins say about one extended resource.
type Resource struct {
	Name string
	// Devices lists all devices, healthy or not, in natural order of ids (CompareIDs). Successive
	// inventories share the unchanged ones: never write to them.
	Devices []*Device
	// Reasons says why devices are unhealthy, as far as the plugin tells.
	Reasons Reasons
	// Addresses has the PCI addresses of devices by id, as far as the plugin tells.
	Addresses map[string]string
	// Generation changes with each list that a plugin sends and with each change of cordons. If the
	// plugin goes away, the devices become unhealthy and the generation stays.
	Generation uint64
	// Connected: a plugin is connected and has sent its first list.
	Connected bool
	// Problem says, for people, why no plugin is connected; empty if one is. Arriving: a plugin has
	// registered and its first device is awaited.
	Problem  string
	Arriving bool
	// Early says, for people, that the newest plugin registered before it could be reached, which
	// the kubelet refuses; else empty.
	Early string
	// Complaint says, for people, what was wrong with the last list, or why it was not read and the
	// one before it counts; else empty.
	Complaint string
	Options   Options
	// Capacity and Allocatable are the numbers for the node's status. They outlive the plugin for
	// its graces. Cordoned devices count only in the capacity.
	Capacity, Allocatable int
}

// Options says which calls a plugin wants.
type Options struct {
	// Preferred: it answers GetPreferredAllocation.
	Preferred bool
	// PreStart: it wants PreStartContainer before each start.
	PreStart bool
	// Released says whether it wants to hear which devices were released.
	Released ReleasedWish
	// Reasons: it says why devices are unhealthy. Places: it says where devices are.
	Reasons, Places bool
}

// Inventory is an immutable snapshot of every resource that plugins registered. Its version grows
// with each change. Share it freely; never write to it.
type Inventory struct {
	Version   uint64
	Resources map[string]Resource
	// Gone lists resources that an earlier inventory had, of this run or an earlier one, by name.
	Gone []string
	// Refused says, for people, why the last registration for a resource was refused, by resource.
	Refused map[string]string
}

// Find returns the device with that id.
func (r Resource) Find(id string) (*Device, bool) {
	at, found := lookUp(r.Devices, id)
	if !found {
		return nil, false
	}
	return r.Devices[at], true
}

// Knows reports whether a plugin has ever had the resource, or has tried to register it.
func (i Inventory) Knows(resource string) bool {
	_, here := i.Resources[resource]
	_, refused := i.Refused[resource]
	_, gone := slices.BinarySearch(i.Gone, resource)
	return here || refused || gone
}

// Count writes the numbers of the inventory's resources into a node's capacity and allocatable;
// resources that are gone become zero. It touches no other entry.
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

// Health returns the health of a device, unknown if no connected plugin lists it.
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
