// Package health reports changes of the hardware that pods hold: devices that became unhealthy,
// CPUs that went offline, nodes that lost memory. It leaves the pods alone, unless the settings have
// something done about failed devices (Failures).
package health

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/topology"
)

// Config holds what the followers read, and the functions that they report to.
type Config struct {
	Hardware  func() machine.Hardware
	State     func() allocation.State
	Inventory func() devicemanager.Inventory
	Drivers   *Drivers // nil: the health of claims' devices is unknown
	// Pod returns the spec of a pod that a source has delivered, Status its last status here.
	Pod    func(types.UID) (*v1.Pod, bool)
	Status func(types.UID) v1.PodStatus
	// Refresh refreshes the pod's status, Tell records an event. Neither may block.
	Refresh func(types.UID)
	Tell    func(pod *v1.Pod, eventType, reason, message string)
	// Devices is set if the health of devices is reported (feature gate ResourceHealthStatus).
	Devices bool
	// Rules say what becomes of pods whose devices fail.
	Rules failure.Rules
	// Unified is set if the host has cgroup v2.
	Unified bool
}

// Follower follows the hardware that pods hold.
type Follower struct {
	cfg     Config
	machine *topology.Machine // in the last look
	devices devices
	cpus    cpus
}

// New returns a follower that has reported nothing yet.
func New(cfg Config) *Follower {
	return &Follower{
		cfg: cfg, devices: devices{cfg: cfg}, cpus: cpus{cfg: cfg, known: offlineCPUs{}},
	}
}

// Look compares the present state with what was reported.
func (f *Follower) Look(ctx context.Context) error {
	if m := f.cfg.Hardware().Machine; m != f.machine {
		f.machine = m
		tellOvercommitted(ctx, f.cfg)
	}
	f.cpus.round()
	if f.cfg.Devices {
		f.devices.round(klog.FromContext(ctx))
	}
	return nil
}
