package volume

import (
	"context"
	"fmt"
	"slices"
)

// take waits until nobody else stages the volume, mounts it for a pod, or looks for pods that use it
// and undoes the stage.
func (v *Volumes) take(ctx context.Context, p place) (done func(), err error) {
	done, err = v.turns.Take(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("volume %v is being mounted for another pod: %w", p, err)
	}
	return done, nil
}

// staged stages the volume and calls mount, which makes the pod's mount of it.
func staged(ctx context.Context, v *Volumes, t target, mount func(target) error) error {
	done, err := v.take(ctx, t.place())
	if err != nil {
		return err
	}
	defer done()
	if err := t.plugin.stage.do(v, t); err != nil {
		return err
	}
	return mount(t)
}

// unstage undoes the stage of a volume that a pod had, unless another pod has it.
func unstage(ctx context.Context, v *Volumes, p place) error {
	at := slices.IndexFunc(plugins(),
		func(one plugin) bool { return one.name == p.plugin && one.stage != nil })
	if at < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	done, err := v.take(ctx, p)
	if err != nil {
		return err
	}
	defer done()
	return plugins()[at].stage.undo(ctx, v, p.name)
}
