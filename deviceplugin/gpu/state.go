package gpu

import (
	"errors"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// DriverName is the usual name of the plugin as a driver of resource claims. It is that of NVIDIA's
// driver, so that DeviceClasses and claims that are made for it work.
const DriverName = "gpu.nvidia.com"

// State is a snapshot with what counts against the devices in it. It is immutable. Before the first
// snapshot it is empty.
type State struct {
	Snapshot
	// Began is when the snapshot's reading began: what was changed later may be missing.
	Began    time.Time
	troubles map[string][]Trouble
}

// Troubles returns what counts against the GPU or the MIG device with that UUID.
func (s State) Troubles(uuid string) []Trouble { return s.troubles[uuid] }

// state returns the last snapshot with the troubles of all devices.
func (w *watch) state() State {
	if w.last == nil {
		return State{}
	}
	out := State{Snapshot: *w.last, Began: w.began, troubles: map[string][]Trouble{}}
	for _, g := range w.last.GPUs {
		out.troubles[g.UUID] = w.troubles(g, NoInstance)
		for _, instance := range g.Instances {
			out.troubles[instance.UUID] = w.troubles(g, instance.GPU)
		}
	}
	return out
}

// CommonEdits returns what every container with a device of the snapshot gets besides it.
func (s Snapshot) CommonEdits(set Settings) (specs.ContainerEdits, error) {
	out := commonEdits(set, s.Files)
	extras, err := set.extras()
	if err != nil {
		return out, err
	}
	for _, e := range extras {
		edits := e.spec(set.DevRoot).Devices[0].ContainerEdits
		out.Env = append(out.Env, edits.Env...)
		out.DeviceNodes = append(out.DeviceNodes, edits.DeviceNodes...)
		out.Mounts = append(out.Mounts, edits.Mounts...)
	}
	return out, nil
}

// Edits returns the device nodes of a GPU or, with its own nodes, of one of its MIG devices.
func (s Snapshot) Edits(set Settings, minor int, own []string) specs.ContainerEdits {
	nodes := nodesOf(s.StandIn, unitNodes(minor, own)...)
	return specs.ContainerEdits{DeviceNodes: cdiNodes(nodes, set.DevRoot)}
}

// forClaims refuses what has no meaning for claims.
func (s Settings) forClaims() error {
	switch {
	case len(s.Shared) > 0:
		return errors.New("sharing in the configuration file is for device plugins: devices of " +
			"claims are shared with --dra-shares")
	case s.MIG != MIGNone:
		return errors.New("--mig-strategy is for device plugins: for claims every MIG device is a " +
			"device, and --dra-mig=dynamic makes them")
	}
	return nil
}
