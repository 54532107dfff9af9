package cpupool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// parallelCalls bounds the concurrent calls to the runtime.
const parallelCalls = 8

// update is the changes of one round.
type update struct {
	view
	want      wanted
	cfg       Config
	reader    reader
	creations *creations
}

// sets updates the containers that lack CPUs, with everything else that they lack. No set grows
// before all sets that shrink have done so.
func (u *update) sets(ctx context.Context) error {
	want, observed := map[string]cpuset.CPUSet{}, map[string]string{}
	for id, l := range u.lacks {
		if !l.cpus.IsEmpty() {
			want[id], observed[id] = l.cpus, l.gaps[0].has
		}
	}
	for _, group := range shrinkingFirst(cpumanager.Plan(want, observed)) {
		if err := u.all(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// rest updates the containers that lack other things than CPUs. Nobody waits for these.
func (u *update) rest(ctx context.Context) error {
	var updates []cpumanager.Update
	for _, id := range slices.Sorted(maps.Keys(u.lacks)) {
		if u.lacks[id].cpus.IsEmpty() {
			updates = append(updates, cpumanager.Update{ContainerID: id})
		}
	}
	return u.all(ctx, updates)
}

// shrinkingFirst splits the updates so that no set grows before all sets that shrink have done so.
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

// all applies updates concurrently. A container that is gone needs none.
func (u *update) all(ctx context.Context, updates []cpumanager.Update) error {
	return await.Each(updates, parallelCalls,
		func(one cpumanager.Update) error { return u.one(ctx, one) })
}

// one gives a container everything it lacks in one call.
func (u *update) one(ctx context.Context, to cpumanager.Update) error {
	l := u.lacks[to.ContainerID]
	err := u.cfg.Runtime.UpdateContainerResources(ctx, l.ID,
		&runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
			CpusetCpus: l.cpus.String(), CpusetMems: l.mems.String(),
			CpuQuota: l.quota.Quota, CpuPeriod: l.quota.Period,
		}})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		// The update may have had an effect or not.
		l.record.told = told{}
		u.creations.outdate(l.pod.UID)
		// The container may have ended meanwhile, which is no error.
		pod, rereadErr := u.cfg.Observer.Reread(ctx, l.pod.UID)
		if rereadErr == nil && !alive(pod, l.ID) {
			return nil
		}
		err = fmt.Errorf("update container %s to %s: %w", l.ID, l, err)
		if l.cpus.IsEmpty() { // others wait only for CPUs, whose update is repeated without delay
			return l.record.resisted(l.String(), err)
		}
		return err
	}
	if !l.cpus.IsEmpty() {
		l.record.told = told{l.cpus, time.Now()}
	}
	if err := u.verify(ctx, l); err != nil {
		return err
	}
	u.tell(ctx, to.Reason, l)
	return nil
}

// verify checks that the kernel has what the runtime says it has set. Other foreign changes are
// left to the next round. If the update included a CPU set, the error is only about that: others
// wait for it.
func (u *update) verify(ctx context.Context, l lack) error {
	now := l.live
	if !l.mems.IsEmpty() {
		now.Applied.Mems = l.mems.String()
	}
	now.kernel = u.reader.look(ctx, now, u.want)
	left := now.lacks(u.want)
	left.gaps = slices.DeleteFunc(left.gaps, func(g gap) bool { return !l.asks(g.what) })
	if len(left.gaps) == 0 {
		l.record.unmoved = unmoved{}
		return nil
	}
	err := l.record.resisted(left.String(), left.resistance())
	if !l.cpus.IsEmpty() && left.cpus.IsEmpty() {
		klog.FromContext(ctx).Info("A container has its CPUs, but not all other settings", "err", err)
		return nil
	}
	return err
}

// tell logs and counts what was done.
func (u *update) tell(ctx context.Context, reason string, l lack) {
	log := klog.FromContext(ctx)
	repaired := false
	for _, g := range l.gaps {
		if g.repair && !l.tried {
			log.Info("Repaired the "+string(g.what)+" of a container, which the runtime had not "+
				"changed", "podUID", l.pod.UID, "containerID", l.ID, "from", g.has, "to", g.want)
			u.cfg.Repaired(g.what)
			repaired = true
		}
	}
	if !repaired {
		log.V(2).Info("Updated a container", "containerID", l.ID, "to", l.String(),
			"reason", reason)
	}
}

func alive(pod cri.Pod, containerID string) bool {
	c, _ := pod.ContainerOf(containerID)
	return c.State == cri.ContainerRunning || c.State == cri.ContainerCreated
}
