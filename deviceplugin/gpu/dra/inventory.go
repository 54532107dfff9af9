package dra

import (
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/dradriver"
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
	base    specs.ContainerEdits
	machine
}

// machine has what the devices are on: the same at any time.
type machine struct {
	settings gpu.Settings
	divider  gpu.Divider // nil: it cannot make MIG devices
	log      func(format string, args ...any)
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

// list returns what is published and reported.
func (i inventory) list() dradriver.List {
	out := dradriver.List{Counters: i.counterSets(), Base: i.base, At: i.at}
	if i.state.Driver == "" {
		out.Unknown = "the NVIDIA driver has not answered yet"
	}
	for _, d := range i.devices {
		out.Devices = append(out.Devices, i.published(d))
	}
	return out
}

func (i inventory) published(d device) dradriver.Device {
	out := dradriver.Device{Trouble: gpu.Describe(d.troubles), Device: resourcev1.Device{Name: d.name,
		Attributes: i.attributes(d), Capacity: capacityOf(d), Taints: i.taints(d)}}
	if d.place != nil {
		out.ConsumesCounters = []resourcev1.DeviceCounterConsumption{consumed(d)}
	}
	i.Shares.addTo(&out.Device)
	return out
}
