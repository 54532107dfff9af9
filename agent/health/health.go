// Package health tells of pods beneath which the hardware changed: devices that became unhealthy,
// CPUs that went offline, memory of which a node has less than it had. The pods are left alone.
package health

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/deviceplugin"
)

// Config is what is followed, and who is told.
type Config struct {
	Hardware  func() machine.Hardware
	State     func() allocation.State
	Inventory func() deviceplugin.Inventory
	// Pod is a pod of which a source has spoken.
	Pod func(types.UID) (*v1.Pod, bool)
	// Refresh makes the pod's status anew. It must not block, nor must Tell, which records an event.
	Refresh func(types.UID)
	Tell    func(pod *v1.Pod, eventType, reason, message string)
	// Devices: the health of devices is told (feature gate ResourceHealthStatus).
	Devices bool
	// Unified: the host has cgroup v2.
	Unified bool
	// Machine has a value when the hardware is another; Changed when the inventory is, or what is
	// assigned, or when there are other pods.
	Machine, Changed <-chan struct{}
}

// Follower follows the hardware that pods hold.
type Follower struct {
	cfg     Config
	devices devices
	cpus    cpus
}

// New returns a follower that has told nothing yet.
func New(cfg Config) *Follower {
	return &Follower{
		cfg: cfg, devices: devices{cfg: cfg}, cpus: cpus{cfg: cfg, known: offlineCPUs{}},
	}
}

// rest is the least time between two rounds: what comes in a burst is looked at once.
const rest = 50 * time.Millisecond

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	tellOvercommitted(ctx, f.cfg)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.cfg.Machine:
			tellOvercommitted(ctx, f.cfg)
		case <-f.cfg.Changed:
		}
		f.cpus.round()
		if f.cfg.Devices {
			f.devices.round()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}
