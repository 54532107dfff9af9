package volume

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// take locks a volume against others that stage it, mount it for a pod, or look for pods that use it
// and undo the stage.
func (m *makers) take(ctx context.Context, p place) (done func(), err error) {
	done, err = m.locks.Lock(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("volume %v is being mounted for another pod: %w", p, err)
	}
	return done, nil
}

// staged stages the volume and calls mount, which makes the pod's mount of it.
func (m *makers) staged(ctx context.Context, t target, mount func(target) error) error {
	done, err := m.take(ctx, t.place())
	if err != nil {
		return err
	}
	defer done()
	if err := t.plugin.stage.do(m, t); err != nil {
		return err
	}
	return mount(t)
}

// unstage undoes the stage of a volume that the pod had, unless another pod has it.
func (m *makers) unstage(ctx context.Context, pod types.UID, p place) (err error) {
	stage := typeNamed(p.plugin).stage
	if stage == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	done, err := m.take(ctx, p)
	if err != nil {
		return err
	}
	defer done()
	if began := time.Now(); !m.pvcs.elsewhere(pod, p.name) {
		defer func() {
			m.cfg.Done(operation.Done{Plugin: p.plugin, Name: operation.Unstage,
				Took: time.Since(began), Err: err})
		}()
	}
	return stage.undo(ctx, m, p.name)
}
