package volume

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// turns let one goroutine at a time work on a staged volume: stage it and mount it for a pod, or
// look for pods that use it and undo the stage. The zero value is ready.
type turns struct {
	all sync.Map // of chan struct{}, by place; the node has few staged volumes
}

// take waits for the volume's turn until ctx ends. done gives the turn back.
func (t *turns) take(ctx context.Context, p place) (done func(), err error) {
	all, _ := t.all.LoadOrStore(p, make(chan struct{}, 1))
	turn := all.(chan struct{}) //nolint:forcetypeassert // of no other type
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("volume %v is being mounted for another pod: %w", p, ctx.Err())
	}
}

// staged stages the volume and calls mount, which makes the pod's mount of it.
func staged(ctx context.Context, v *Volumes, t target, mount func(target) error) error {
	done, err := v.turns.take(ctx, t.place())
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
	done, err := v.turns.take(ctx, p)
	if err != nil {
		return err
	}
	defer done()
	return plugins()[at].stage.undo(ctx, v, p.name)
}
