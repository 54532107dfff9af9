package dra

import (
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// device is a GPU, a MIG device, or a place for one.
type device struct {
	// name is the device's name in ResourceSlices.
	name string
	gpu  gpu.GPU
	// instance is the MIG device; nil: the device is a GPU, or a place where there is none.
	instance *gpu.Instance
	// place is set where claims divide the GPU.
	place    *gpu.Partition
	troubles []gpu.Trouble
}

// uuid returns the UUID of the GPU or MIG device; "" for a place where there is none.
func (d device) uuid() string {
	switch {
	case d.instance != nil:
		return d.instance.UUID
	case d.place != nil:
		return ""
	}
	return d.gpu.UUID
}

// inventory holds the devices of a state. It is immutable.
type inventory struct {
	Options
	state   gpu.State
	devices []device
	at      time.Time
}

// inventoryOf derives the devices from a state. It is pure.
func inventoryOf(s gpu.State, o Options, at time.Time) inventory {
	out := inventory{Options: o, state: s, at: at}
	names := map[string]bool{}
	add := func(d device) {
		if !names[d.name] { // a driver that gives two GPUs one number: the log says so
			names[d.name] = true
			out.devices = append(out.devices, d)
		}
	}
	for _, g := range s.GPUs {
		troubles := s.Troubles(g.UUID)
		switch {
		case !g.MIG:
			add(device{name: gpuName(g), gpu: g, troubles: troubles})
		case o.Dynamic:
			for n := range g.Traits.Partitions {
				place := &g.Traits.Partitions[n]
				d := device{name: placeName(g, *place), gpu: g, place: place, troubles: troubles}
				if d.instance = standing(g, *place); d.instance != nil {
					d.troubles = s.Troubles(d.instance.UUID)
				}
				add(d)
			}
		default:
			for n := range g.Instances {
				instance := &g.Instances[n]
				add(device{name: instanceName(g, *instance), gpu: g, instance: instance,
					troubles: s.Troubles(instance.UUID)})
			}
		}
	}
	return out
}

// standing returns the GPU's MIG device at a place; nil: there is none.
func standing(g gpu.GPU, place gpu.Partition) *gpu.Instance {
	for n, instance := range g.Instances {
		if instance.Start == place.Start && instance.Profile == place.Profile {
			return &g.Instances[n]
		}
	}
	return nil
}

func gpuName(g gpu.GPU) string { return fmt.Sprintf("gpu-%d", g.Minor) }

// placeName has the form of NVIDIA's driver: GPU, profile, number of the profile, first slice.
func placeName(g gpu.GPU, p gpu.Partition) string {
	return fmt.Sprintf("%s-mig-%s-%d-%d", gpuName(g), label(p.Profile), p.ID, p.Start)
}

func instanceName(g gpu.GPU, i gpu.Instance) string {
	return fmt.Sprintf("%s-mig-%s-gi%d-ci%d", gpuName(g), label(i.Profile), i.GPU, i.Compute)
}

// label makes a profile's name part of a DNS label: "1g.10gb+me" is "1g10gb-me".
func label(profile string) string {
	return strings.NewReplacer(".", "", "+", "-").Replace(strings.ToLower(profile))
}

// find returns the device with that name.
func (i inventory) find(name string) (device, bool) {
	for _, d := range i.devices {
		if d.name == name {
			return d, true
		}
	}
	return device{}, false
}

// resources returns what is published: the counters first, then the devices, in slices of at most
// the API's size. All devices may have taints, whose slices are smaller; a device that gets one
// moves no other device to another slice.
func (i inventory) resources() resourceslice.DriverResources {
	var pool resourceslice.Pool
	sets := i.counterSets()
	for len(sets) > 0 {
		n := min(len(sets), resourcev1.ResourceSliceMaxCounterSets)
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: sets[:n]})
		sets = sets[n:]
	}
	var devices []resourcev1.Device
	for _, d := range i.devices {
		devices = append(devices, i.published(d))
	}
	for len(devices) > 0 {
		n := min(len(devices), resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures)
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: devices[:n]})
		devices = devices[n:]
	}
	if len(pool.Slices) == 0 { // the driver is there, and has no devices
		pool.Slices = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{i.Node: pool}}
}

func (i inventory) published(d device) resourcev1.Device {
	out := resourcev1.Device{Name: d.name, Attributes: i.attributes(d), Capacity: capacityOf(d),
		Taints: i.taints(d)}
	if d.place != nil {
		out.ConsumesCounters = []resourcev1.DeviceCounterConsumption{consumed(d)}
	}
	i.Shares.addTo(&out)
	return out
}

// maxMessage bounds a message about health, in bytes.
const maxMessage = 1024

// health reports the health of all devices.
func (i inventory) health() kubeletplugin.DeviceHealthReport {
	var out kubeletplugin.DeviceHealthReport
	for _, d := range i.devices {
		one := kubeletplugin.DeviceHealth{PoolName: i.Node, DeviceName: d.name, LastUpdated: i.at,
			Health: kubeletplugin.HealthStatusHealthy}
		if len(d.troubles) > 0 {
			one.Health = kubeletplugin.HealthStatusUnhealthy
			one.Message = gpu.Describe(d.troubles)
			one.Message = one.Message[:min(len(one.Message), maxMessage)]
		}
		out.Devices = append(out.Devices, one)
	}
	return out
}
