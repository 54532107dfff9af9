package agent

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/part"
)

// healthDomain keeps what CSI drivers said last of the health of pods' volumes. The zero value is of
// a node that does not ask.
type healthDomain struct {
	last *atomic.Pointer[map[types.UID]volume.Health]
}

// asksHealth reports whether CSI drivers are asked for the health of volumes and of their storage.
func (n node) asksHealth() bool { return n.cfg.Gates.Enabled("CSIVolumeHealth") }

func newVolumeHealth(n node) healthDomain {
	if !n.asksHealth() || n.kube == nil {
		return healthDomain{}
	}
	return healthDomain{new(atomic.Pointer[map[types.UID]volume.Health])}
}

// of returns what statuses of pods say of volumes; nil: nothing.
func (d healthDomain) of() func(types.UID) map[string][]v1.VolumeHealthCondition {
	if d.last == nil {
		return nil
	}
	return func(pod types.UID) map[string][]v1.VolumeHealthCondition { return d.get()[pod] }
}

func (d healthDomain) get() map[types.UID]volume.Health {
	if now := d.last.Load(); now != nil {
		return *now
	}
	return nil
}

// parts ask drivers each volumeStatsAggPeriod, as the kubelet does.
func (d healthDomain) parts(n node, c contentDomain, drivers csiDomain, pods *podstatus.Store) []part.Part {
	if d.last == nil {
		return nil
	}
	period := n.cfg.Kubelet.VolumeStatsAggPeriod.Duration
	if period <= 0 {
		period = time.Minute
	}
	return []part.Part{part.Chore(housekeeping.Task{
		Name: "health of volumes", Period: period, First: time.Second,
		Run: func(ctx context.Context) error {
			drivers.AskStorage()
			before, now := d.get(), c.volumes.Health(ctx, pods.Active())
			d.last.Store(&now)
			for pod, is := range now {
				if !reflect.DeepEqual(before[pod], is) {
					c.changed.Put(pod)
				}
			}
			return nil
		},
	})}
}
