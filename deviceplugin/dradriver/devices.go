package dradriver

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Devices is a view of a driver's devices at one moment. Obtain and Drop are called one at a time.
type Devices interface {
	// Stands reports whether nothing tells that a claim's device has gone, or is another one now.
	Stands(r Record, h Held) bool
	// Obtain makes a device ready for the claim of r, and says in h which hardware it is. all has
	// the claims that are prepared.
	Obtain(all Records, r Record, h *Held) error
	// Edits returns what containers get with each device of a claim, in their order.
	Edits(r Record) ([]specs.ContainerEdits, error)
	// Drop takes back devices that no claim has any more.
	Drop(all []Held) error
}

// Device is a device as it is published, with its health.
type Device struct {
	resourcev1.Device
	// Trouble says, for people, why no pod should get it; "": it is healthy.
	Trouble string
}

// List has the devices that a driver publishes. It is immutable.
type List struct {
	Devices  []Device
	Counters []resourcev1.CounterSet
	// Base has the edits for every container that gets a device.
	Base specs.ContainerEdits
	// Unknown says why nothing is known of devices yet; "": the list is complete.
	Unknown string
	// At is when the devices were looked at.
	At time.Time
}

// find returns the device with that name.
func (l List) find(name string) (Device, bool) {
	at := slices.IndexFunc(l.Devices, func(d Device) bool { return d.Name == name })
	if at < 0 {
		return Device{}, false
	}
	return l.Devices[at], true
}

// Resources returns what is published: the counters first, then the devices, in slices of at most
// the API's size. All devices may have taints, whose slices are smaller; a device that gets one
// moves no other device to another slice.
func (l List) Resources(node string) resourceslice.DriverResources {
	var pool resourceslice.Pool
	for sets := range slices.Chunk(l.Counters, resourcev1.ResourceSliceMaxCounterSets) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: sets})
	}
	for part := range slices.Chunk(l.Devices, resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		var slice resourceslice.Slice
		for _, d := range part {
			slice.Devices = append(slice.Devices, d.Device)
		}
		pool.Slices = append(pool.Slices, slice)
	}
	if len(pool.Slices) == 0 { // the driver is there, and has no devices
		pool.Slices = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

// maxMessage bounds a message about health, in bytes.
const maxMessage = 1024

// health reports the health of all devices.
func (l List) health(node string) kubeletplugin.DeviceHealthReport {
	var out kubeletplugin.DeviceHealthReport
	for _, d := range l.Devices {
		one := kubeletplugin.DeviceHealth{PoolName: node, DeviceName: d.Name, LastUpdated: l.At,
			Health: kubeletplugin.HealthStatusHealthy}
		if d.Trouble != "" {
			one.Health = kubeletplugin.HealthStatusUnhealthy
			one.Message = d.Trouble[:min(len(d.Trouble), maxMessage)]
		}
		out.Devices = append(out.Devices, one)
	}
	return out
}
