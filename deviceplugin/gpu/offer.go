package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/numalet/numalet/topology"
)

const (
	vendor = "nvidia.com/"
	// GPUResource is the resource of whole GPUs.
	GPUResource = vendor + "gpu"
	migPrefix   = vendor + "mig-"
)

// unit is a GPU or a MIG device: what one container gets, or what is shared.
type unit struct {
	// id is its UUID, index the driver's number: "0", or "0:1" for MIG device 1 of GPU 0.
	id, index string
	// bus is the PCI address of its GPU.
	bus string
	// gpu is the GPU's position in the snapshot.
	gpu      int
	node     topology.NodeID
	nodes    []node
	mig      bool
	troubles []Trouble
}

// node is a device node: its paths on the host and in containers.
type node struct{ host, container string }

// nodesOf returns device nodes with the same path on both sides, or with the host's stand-in.
func nodesOf(standIn string, paths ...string) (nodes []node) {
	for _, path := range paths {
		nodes = append(nodes, node{cmp.Or(standIn, path), path})
	}
	return nodes
}

// device is an item of the list for the kubelet: a unit, or one of its replicas.
type device struct {
	id string
	*unit
}

// offer holds the devices of one resource.
type offer struct {
	devices []device
	// shared says how devices are shared; nil: each device is a whole unit.
	shared *Sharing
}

// offers holds all offers by resource, and the reasons why something is not offered.
type offers struct {
	resources map[string]offer
	refused   []string
}

// facts supply what a snapshot does not hold.
type facts struct {
	// health returns the troubles of a GPU or, with an instance, of its MIG device.
	health func(g GPU, instance *Instance) []Trouble
	// mps reports whether a control daemon serves the resource.
	mps func(resource string) bool
}

// offersOf derives the offers from a snapshot. It is pure.
func offersOf(s Snapshot, set Settings, f facts) offers {
	units, refused := unitsOf(s, set.MIG, f.health)
	out := offers{resources: map[string]offer{}, refused: refused}
	for resource, all := range units {
		share := set.sharing(resource)
		whole, shared := offer{}, offer{shared: share}
		for n, u := range all {
			if share == nil || !share.covers(u, n) {
				whole.devices = append(whole.devices, device{u.id, u})
				continue
			}
			if share.MPS && !f.mps(share.As) {
				u.troubles = append(u.troubles, Trouble{NoMPS, "no MPS control daemon has a pipe " +
					"for " + share.As + " in " + set.MPSRoot + "; start it"})
			}
			for replica := range share.Replicas {
				shared.devices = append(shared.devices,
					device{fmt.Sprintf("%s::%d", u.id, replica), u})
			}
		}
		if len(whole.devices) > 0 {
			out.resources[resource] = whole
		}
		if len(shared.devices) > 0 {
			out.resources[share.As] = shared
		}
	}
	return out
}

// covers reports whether the unit, the n-th of its resource, is shared.
func (s *Sharing) covers(u *unit, n int) bool {
	if s.Devices != nil {
		return slices.Contains(s.Devices, u.id) || slices.Contains(s.Devices, u.index)
	}
	return s.Count == 0 || n < s.Count
}

// unitsOf sorts GPUs and MIG devices by resource, and says what is refused.
func unitsOf(s Snapshot, strategy MIGStrategy, health func(GPU, *Instance) []Trouble) (
	map[string][]*unit, []string) {
	if strategy == MIGSingle {
		if why := notSingle(s); why != "" {
			return nil, []string{why}
		}
	}
	units := map[string][]*unit{}
	var refused []string
	ids := map[string]bool{"": true}
	add := func(resource, id string, unit func() *unit) {
		if ids[id] {
			refused = append(refused, fmt.Sprintf("a device of %s is not offered: the driver gives "+
				"it the UUID %q, by which nothing or another one is known", resource, id))
			return
		}
		ids[id] = true
		units[resource] = append(units[resource], unit())
	}
	for at, g := range s.GPUs {
		if strategy == MIGNone || !g.MIG {
			add(GPUResource, g.UUID, func() *unit { return wholeGPU(s, at, health(g, nil)) })
			continue
		}
		if len(g.Instances) == 0 && strategy != migByClaims {
			refused = append(refused, fmt.Sprintf("GPU %d is in MIG mode and not divided: make "+
				"MIG devices, or leave the mode", g.Index))
		}
		for n := range g.Instances {
			instance := &g.Instances[n]
			resource := GPUResource
			if strategy != MIGSingle {
				resource = migPrefix + strings.ReplaceAll(instance.Profile, "+", ".")
			}
			add(resource, instance.UUID, func() *unit {
				return migDevice(s, at, n, health(g, instance))
			})
		}
	}
	return units, refused
}

// notSingle says why MIG devices cannot be offered as GPUs; "": they can.
func notSingle(s Snapshot) string {
	profiles, divided := map[string]bool{}, 0
	for _, g := range s.GPUs {
		if g.MIG {
			divided++
		}
		for _, instance := range g.Instances {
			profiles[instance.Profile] = true
		}
	}
	switch {
	case divided == 0:
		return ""
	case divided < len(s.GPUs):
		return fmt.Sprintf("MIG strategy single: %d of %d GPUs are in MIG mode; all or none "+
			"have to be, or use the strategy mixed", divided, len(s.GPUs))
	case len(profiles) > 1:
		return "MIG strategy single: the MIG devices have several profiles; make them equal, or " +
			"use the strategy mixed"
	}
	return ""
}

func wholeGPU(s Snapshot, at int, troubles []Trouble) *unit {
	g := s.GPUs[at]
	return &unit{id: g.UUID, index: fmt.Sprint(g.Index), bus: g.Bus, gpu: at, node: g.Node, troubles: troubles,
		nodes: nodesOf(s.StandIn, unitNodes(g.Minor, nil)...)}
}

func migDevice(s Snapshot, at, number int, troubles []Trouble) *unit {
	g, instance := s.GPUs[at], s.GPUs[at].Instances[number]
	paths := unitNodes(g.Minor, instance.Nodes)
	return &unit{id: instance.UUID, index: fmt.Sprintf("%d:%d", g.Index, number), bus: g.Bus,
		gpu: at, node: g.Node, mig: true, troubles: troubles, nodes: nodesOf(s.StandIn, paths...)}
}

// unitNodes returns the paths of the device nodes of a GPU or, with its own nodes, of one of its
// MIG devices.
func unitNodes(minor int, own []string) []string {
	return append([]string{fmt.Sprintf("/dev/nvidia%d", minor)}, own...)
}

// byIndex orders units as the driver numbers them, so that answers read well.
func byIndex(a, b *unit) int {
	return cmp.Or(cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.index, b.index))
}
