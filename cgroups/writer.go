package cgroups

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/await"
)

// writer makes, changes and removes one cgroup at a time. Systemd, if it is the driver, is given
// every value before the kernel is: it would otherwise reset it.
type writer struct {
	driver  Driver
	kernel  hierarchy
	systemd *systemd // nil unless it is the driver
	took    *metrics.HistogramVec
}

func (w writer) dir(controller string, g group) directory {
	return w.kernel.dir(controller, g.path(w.driver))
}

// done measures an operation; call it deferred with the time of its begin.
func (w writer) done(operation string, at time.Time) {
	w.took.WithLabelValues(operation).Observe(time.Since(at).Seconds())
}

func (w writer) write(ctx context.Context, kernel hierarchy, g group, r Resources) error {
	path := g.path(w.driver)
	if w.systemd != nil {
		if err := w.systemd.ensure(ctx, g, r); err != nil {
			return fmt.Errorf("make cgroup %s: %w", path, err)
		}
	}
	if err := kernel.apply(path, r); err != nil {
		return fmt.Errorf("make cgroup %s: %w", path, err)
	}
	return nil
}

// killEvery is the interval between looks for processes that are being killed.
const killEvery = 10 * time.Millisecond

// remove skips a cgroup that does not exist.
func (w writer) remove(ctx context.Context, g group) error {
	where := g.path(w.driver)
	siblings, err := w.kernel.children(path.Dir(where))
	if err != nil || !slices.Contains(siblings, path.Base(where)) {
		return err
	}
	defer w.done("destroy", time.Now())
	if err := w.killAll(ctx, where); err != nil {
		return err
	}
	if w.systemd != nil {
		if err := w.systemd.stop(ctx, g); err != nil {
			return err
		}
	}
	return w.kernel.remove(where)
}

func (w writer) killAll(ctx context.Context, where string) error {
	for {
		left, err := w.kernel.kill(where)
		if err != nil || left == 0 {
			return err
		}
		if !await.For(ctx, killEvery) {
			return fmt.Errorf("%d killed processes in %s have not exited: %w", left, where,
				context.Cause(ctx))
		}
	}
}
