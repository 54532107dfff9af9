package csinodes

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/internal/await"
)

const (
	// lookAt is how often the CSIDriver of a driver without a period is read again.
	lookAt = 10 * time.Minute
	// shortest is the shortest nodeAllocatableUpdatePeriodSeconds that the API takes.
	shortest = 10 * time.Second
)

// periods ask drivers how many volumes the node takes, as often as their CSIDrivers say
// (MutableCSINodeAllocatableCount). Each driver has a goroutine.
type periods struct {
	cfg     Config
	tasks   await.Tasks
	drivers map[string]context.CancelFunc
}

func newPeriods(c Config) periods { return periods{cfg: c, drivers: map[string]context.CancelFunc{}} }

// follow asks these drivers from now on, and no others. One goroutine calls it.
func (p *periods) follow(drivers []csi.Node) {
	is := map[string]bool{}
	for _, d := range drivers {
		is[d.Driver] = true
		if p.drivers[d.Driver] == nil {
			p.drivers[d.Driver] = p.tasks.Go(func(ctx context.Context) { p.ask(ctx, d.Driver) })
		}
	}
	for name, stop := range p.drivers {
		if !is[name] {
			stop()
			delete(p.drivers, name)
		}
	}
}

// ask asks a driver in its period until ctx ends.
func (p *periods) ask(ctx context.Context, driver string) {
	for {
		period := p.of(ctx, driver)
		if period == 0 {
			if !await.For(ctx, lookAt) {
				return
			}
			continue
		}
		if !await.For(ctx, max(period, shortest)) {
			return
		}
		p.cfg.Ask(driver)
	}
}

// of returns the period of a driver; 0: it has none.
func (p *periods) of(ctx context.Context, driver string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	is, err := p.cfg.Client.StorageV1().CSIDrivers().Get(ctx, driver, metav1.GetOptions{})
	switch {
	case err == nil:
		if s := is.Spec.NodeAllocatableUpdatePeriodSeconds; s != nil {
			return time.Duration(*s) * time.Second
		}
	case !apierrors.IsNotFound(err) && ctx.Err() == nil:
		klog.FromContext(ctx).V(2).Info("A CSIDriver was not read, and is read again later", "driver", driver,
			"err", requests.Short(err))
	}
	return 0
}
