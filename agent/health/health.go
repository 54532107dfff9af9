// Package health tells of pods beneath which the hardware changed: devices that became unhealthy,
// CPUs that went offline, memory of which a node has less than it had. The pods are left alone.
package health

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// Config is what is followed, and who is told.
type Config struct {
	Hardware  func() machine.Hardware
	State     func() allocation.State
	Inventory func() deviceplugin.Inventory
	// Pod is the spec of a pod of which a source has spoken, Status its last status here.
	Pod    func(types.UID) (*v1.Pod, bool)
	Status func(types.UID) v1.PodStatus
	// Refresh makes the pod's status anew. It must not block, nor must Tell, which records an event.
	Refresh func(types.UID)
	Tell    func(pod *v1.Pod, eventType, reason, message string)
	// Devices: the health of devices is told (feature gate ResourceHealthStatus).
	Devices bool
	// Unified: the host has cgroup v2.
	Unified bool
}

// Follower follows the hardware that pods hold.
type Follower struct {
	cfg     Config
	machine *topology.Machine // at the last look
	devices devices
	cpus    cpus
}

// New returns a follower that has told nothing yet.
func New(cfg Config) *Follower {
	return &Follower{
		cfg: cfg, devices: devices{cfg: cfg}, cpus: cpus{cfg: cfg, known: offlineCPUs{}},
	}
}

// Look compares what is with what was told.
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
