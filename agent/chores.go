package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/agent/lifecycle"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cgroups"
)

// qosPeriod is how often the QoS cgroups are written even if no pod came or went.
const qosPeriod = time.Minute

// exportDelay is how long a commit waits for others before the kubelet's checkpoints, which are
// written whole, are written once for all of them.
const exportDelay = 50 * time.Millisecond

// exportRest is how many times as long as the last export took the next one waits at least: the
// list of a plugin with hundreds of thousands of devices takes most of a second to write.
const exportRest = 4

// chores is the work that the syncLoop asks for and does not wait for: removing what nobody
// desires, writing the kubelet's checkpoints, keeping the QoS cgroups. One goroutine does it.
type chores struct {
	pods     *pods
	observer *lifecycle.Observer
	workers  *podworker.Workers
	queue    *admission.Queue
	store    *allocation.Store
	volumes  *volume.Volumes
	pool     *cpupool.Pool
	cgroups  *cgroups.Tree // nil: pods get no cgroups of ours
	// checkpoints writes the kubelet's files.
	checkpoints func() error
	// measure brings the gauges up to date.
	measure func()
	// ready reports whether every configured source was heard: before that nothing is removed.
	ready func() bool

	wakeExport, wakeHousekeep chan struct{} // capacity 1
}

// export asks for the kubelet's checkpoints to be written, and for those who watch to be told.
func (c *chores) export() {
	signal(c.wakeExport)
	signal(c.pods.changed)
}

// housekeep asks for a round of housekeeping.
func (c *chores) housekeep() { signal(c.wakeHousekeep) }

func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it is going to look anyway
	}
}

func (c *chores) run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	var qosAt time.Time
	var qosPods sets.Set[types.UID]
	var exportDue <-chan time.Time // nil: nothing is to be exported
	var exportTook time.Duration
	export := func() {
		began := time.Now()
		defer func() { exportDue, exportTook = nil, time.Since(began) }()
		if err := c.checkpoints(); err != nil {
			log.Info("The kubelet's checkpoints were not written", "err", err)
		}
		c.measure()
	}
	for {
		select {
		case <-ctx.Done():
			if exportDue != nil {
				export()
			}
			return nil
		case <-c.store.Changed():
			c.pool.Wake()
			c.export()
		case <-c.wakeExport:
			if exportDue == nil {
				exportDue = time.After(max(exportDelay, exportRest*exportTook))
			}
		case <-exportDue:
			export()
		case <-c.wakeHousekeep:
			c.measure()
			active := uids(c.pods.active())
			if !active.Equal(qosPods) || time.Since(qosAt) > qosPeriod {
				c.updateQoS(ctx)
				qosAt, qosPods = time.Now(), active
			}
			if c.ready() {
				c.removeOrphans(ctx)
			}
		}
	}
}

func uids(list []*v1.Pod) sets.Set[types.UID] {
	out := sets.New[types.UID]()
	for _, pod := range list {
		out.Insert(pod.UID)
	}
	return out
}

func (c *chores) updateQoS(ctx context.Context) {
	if c.cgroups == nil {
		return
	}
	if err := c.cgroups.UpdateQOS(ctx, c.pods.active()); err != nil {
		klog.FromContext(ctx).Info("The QoS cgroups were not updated", "err", err)
	}
}

// removeOrphans removes what is left of pods that nobody desires. Workers do it, so that a pod
// that is desired again meanwhile waits for its turn.
func (c *chores) removeOrphans(ctx context.Context) {
	busy := sets.New(c.workers.Known()...)
	left := map[types.UID]*v1.Pod{}
	for _, pod := range c.observer.All() {
		left[pod.UID] = named(pod.UID, pod.Namespace, pod.Name)
	}
	for _, uid := range c.files(ctx) {
		if left[uid] == nil {
			left[uid] = named(uid, "", "")
		}
	}
	for uid, pod := range left {
		if c.pods.known(uid) || busy.Has(uid) {
			continue
		}
		klog.FromContext(ctx).Info("Removing a pod that nobody desires", "pod", klog.KObj(pod),
			"podUID", uid)
		c.workers.Update(podworker.Desired{
			Pod: pod, Stop: &podworker.Stop{Orphan: true, Remove: true},
		})
	}
	for uid := range c.store.State().Pods {
		if left[uid] == nil && !c.pods.known(uid) && !busy.Has(uid) {
			c.queue.Release(uid)
		}
	}
}

// files lists the pods that have a directory or a cgroup.
func (c *chores) files(ctx context.Context) []types.UID {
	log := klog.FromContext(ctx)
	out, err := c.volumes.Orphans(nil)
	if err != nil {
		log.Info("Directories of removed pods were not found", "err", err)
	}
	if c.cgroups == nil {
		return out
	}
	groups, err := c.cgroups.Orphans(func(types.UID) bool { return false })
	if err != nil {
		log.Info("Cgroups of removed pods were not found", "err", err)
	}
	return append(out, groups...)
}

func named(uid types.UID, namespace, name string) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = uid, namespace, name
	return pod
}
