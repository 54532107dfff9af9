package cpupool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
)

// updateSets updates the containers that lack CPUs, and with them what else they lack. Nothing
// grows before everything that shrinks did.
func (p *Pool) updateSets(ctx context.Context, v view) error {
	want, observed := map[string]cpuset.CPUSet{}, map[string]string{}
	for id, l := range v.lacks {
		if !l.cpus.IsEmpty() {
			want[id], observed[id] = l.cpus, l.has
		}
	}
	for _, group := range shrinkingFirst(cpumanager.Plan(want, observed)) {
		if err := p.update(ctx, group, v); err != nil {
			p.on = policies{} // perhaps the groups above do not have the CPUs any more
			return err
		}
	}
	return nil
}

// updateRest updates the containers that lack something else. Nobody waits for that.
func (p *Pool) updateRest(ctx context.Context, v view) {
	var updates []cpumanager.Update
	for _, id := range slices.Sorted(maps.Keys(v.lacks)) {
		if v.lacks[id].cpus.IsEmpty() {
			updates = append(updates, cpumanager.Update{ContainerID: id})
		}
	}
	if err := p.update(ctx, updates, v); err != nil && ctx.Err() == nil {
		p.on = policies{}
		klog.FromContext(ctx).Info("Updating containers is tried again", "err", err)
	}
}

// shrinkingFirst splits the updates so that nothing grows before everything that shrinks did.
func shrinkingFirst(updates []cpumanager.Update) [][]cpumanager.Update {
	var shrink, grow []cpumanager.Update
	for _, u := range updates {
		if u.To.IsSubsetOf(u.From) || u.From.IsEmpty() {
			shrink = append(shrink, u)
		} else {
			grow = append(grow, u)
		}
	}
	return [][]cpumanager.Update{shrink, grow}
}

// update applies updates side by side. A container that is gone needs none.
func (p *Pool) update(ctx context.Context, updates []cpumanager.Update, v view) error {
	return parallel(len(updates), func(i int) error { return p.updateOne(ctx, updates[i], v) })
}

// parallel calls f for 0 to n-1, some at a time, and returns each error: one container's must not
// hide another's.
func parallel(n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(parallelCalls)
	errs := make([]error, n)
	for i := range n {
		group.Go(func() error {
			errs[i] = f(i)
			return nil
		})
	}
	_ = group.Wait() // each error is in errs
	return errors.Join(errs...)
}

// updateOne gives a container what it lacks in one call.
func (p *Pool) updateOne(ctx context.Context, u cpumanager.Update, v view) error {
	id, l := u.ContainerID, v.lacks[u.ContainerID]
	err := p.cfg.Runtime.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{
			CpusetCpus: l.cpus.String(), CpusetMems: l.mems.String(),
			CpuQuota: l.quota.Quota, CpuPeriod: l.quota.Period,
		},
	})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		p.doubt(id, l.owner)
		// It may have ended meanwhile, which is no error.
		pod, rereadErr := p.cfg.Observer.Reread(ctx, l.owner)
		if rereadErr == nil && !alive(pod, id) {
			return nil
		}
		err = fmt.Errorf("update container %s to %s: %w", id, l, err)
		if l.cpus.IsEmpty() { // others wait for CPUs only: those are tried at once
			return p.resisted(id, l.String(), err)
		}
		return err
	}
	if !l.cpus.IsEmpty() {
		p.remember(id, l.cpus)
	}
	if err := p.verify(ctx, id, v); err != nil {
		return err
	}
	p.tell(ctx, u, l)
	return nil
}

// tell says what was done.
func (p *Pool) tell(ctx context.Context, u cpumanager.Update, l lack) {
	log := klog.FromContext(ctx)
	for _, what := range l.repairs {
		from, to := l.has, l.cpus.String()
		switch what {
		case MemoryNodes:
			from, to = l.hasMems, l.mems.String()
		case CPUQuota:
			from, to = l.hasQuota.String(), l.quota.String()
		case CPUSet:
		}
		log.Info("Repaired the "+string(what)+" of a container, which the runtime had not changed",
			"podUID", l.owner, "containerID", u.ContainerID, "from", from, "to", to)
		p.repaired(what)
	}
	if len(l.repairs) == 0 {
		log.V(2).Info("Updated a container", "containerID", u.ContainerID, "to", l.String(),
			"reason", u.Reason)
	}
}

func (p *Pool) repaired(what Repair) {
	if p.cfg.Repaired != nil {
		p.cfg.Repaired(what)
	}
}

func (p *Pool) remember(id string, cpus cpuset.CPUSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[id] = told{cpus, time.Now()}
}

// doubt says that an update may have had an effect or not.
func (p *Pool) doubt(containerID string, owner types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.told, containerID)
	p.stale[owner] = time.Now()
}

func alive(pod cri.Pod, containerID string) bool {
	for _, c := range pod.Containers {
		if c.ID == containerID {
			return c.State == cri.ContainerRunning || c.State == cri.ContainerCreated
		}
	}
	return false
}
