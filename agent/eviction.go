package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/eviction"
	"github.com/numalet/numalet/agent/gc"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/syncloop"
)

// newEviction ends pods before memory, a disk or PIDs run out. What it may remove first is removed by
// containers and images.
func (a *Agent) newEviction(containers gc.Containers, images *gc.Images) (*eviction.Manager, error) {
	n, k := a.node, &a.node.cfg.Kubelet
	thresholds, err := eviction.Parse(k)
	if err != nil {
		return nil, err
	}
	return eviction.New(eviction.Config{
		Thresholds: thresholds, Pressure: a.host.short,
		Transition: k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace:   time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
		Measure:    a.measureShortage, Pods: a.pods.statuses.Active,
		Exclusive: func(uid types.UID) bool { return !n.store.State().Pods[uid].IsEmpty() },
		Holds: func(uid types.UID) bool {
			return !n.store.State().Pods[uid].IsEmpty() || slices.ContainsFunc(
				a.pods.statuses.Active(), func(p *v1.Pod) bool { return p.UID == uid })
		},
		Grace: podworker.Grace,
		Reclaim: func(ctx context.Context, what eviction.Reclaim) (err error) {
			if what.Containers {
				err = containers.Free(ctx)
			}
			if what.Images {
				err = errors.Join(err, images.Free(ctx))
			}
			return err
		},
		Evict: func(e eviction.Eviction) {
			n.events.Annotated(e.Pod, e.Annotations, v1.EventTypeWarning, eviction.ReasonEvicted, e.Message)
			a.pods.statuses.events.Put(syncloop.Event{UID: e.Pod.UID, Event: pod.Event{
				Kind: pod.Killed, Grace: e.Grace,
				Why: pod.Why{Reason: eviction.ReasonEvicted, Message: e.Message},
			}})
		},
		Tell: n.events.OnNode, Registry: n.registry,
	})
}

// measureShortage says what the node and its pods use, beside what of the node is no memory for pods.
func (a *Agent) measureShortage(ctx context.Context) (
	statsapi.Summary, eviction.Host, time.Time, error) {
	summary, s, err := a.stats.Measure(ctx)
	if err != nil {
		return summary, eviction.Host{}, time.Time{}, err
	}
	host := eviction.Host{Memory: int64(s.Machine.Memory)}
	if a.node.cfg.Gates.Enabled("HugepageAwareEviction") {
		host.HugePages = int64(s.Machine.HugePages)
	}
	if slices.Contains(a.node.cfg.Kubelet.EnforceNodeAllocatable, "pods") {
		h := a.node.hardware.Get()
		limit := h.Capacity[v1.ResourceMemory].DeepCopy()
		limit.Sub(h.Reservation.Reserved[v1.ResourceMemory])
		host.PodsCapacity = limit.Value()
	}
	return summary, host, s.At, nil
}
