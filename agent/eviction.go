package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/eviction/wake"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/agent/serving/usage"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/route"
)

// newEvictions end pods of which the node says that they go: before memory, a disk or PIDs run out,
// and those that use more of the node's disk than they may. What may be removed first is removed by
// upkeep.
func (a *Agent) newEvictions() ([]part.Part, error) {
	ends := eviction.NewOnce(a.pods.statuses.Active, func(e eviction.Eviction) {
		a.node.events.Annotated(e.Pod, e.Annotations, v1.EventTypeWarning, eviction.ReasonEvicted, e.Message)
		a.pods.statuses.events.Put(syncloop.Killed(e.Pod.UID, evicted(e.Message, e.OwnLimit), e.Grace))
	})
	manager, run, err := a.newEviction(ends)
	if err != nil || !*a.node.cfg.Kubelet.LocalStorageCapacityIsolation {
		return run, err
	}
	keeper := localstorage.NewKeeper(localstorage.KeeperConfig{
		Pods: ends.Pods, Used: a.stats.Recent, Apart: eviction.ImagesApart,
		End: func(p *v1.Pod, e localstorage.Excess) {
			one := eviction.Eviction{Pod: p, Signal: eviction.Signal(e.Signal),
				Grace: time.Second, Words: eviction.Words{Message: e.Message}, OwnLimit: true}
			manager.Note(one)
			ends.Evict(one)
		},
	})
	return append(run, part.Of("limits of local storage", keeper.Run)), nil
}

// newEviction ends pods before memory, a disk or PIDs run out.
func (a *Agent) newEviction(ends *eviction.Once) (m *eviction.Manager, run []part.Part, err error) {
	n, k := a.node, &a.node.cfg.Kubelet
	thresholds, err := eviction.Thresholds(n.cfg)
	if err != nil {
		return nil, nil, err
	}
	use := usage.Usage{Stats: a.stats, Disks: a.disks, Hardware: n.hardware.Get,
		Limited: slices.Contains(k.EnforceNodeAllocatable, "pods")}
	if a.host.tree != nil {
		use.PodsGroup = a.host.tree.PodsPath()
	}
	kernelTells := wake.New(wake.Config{
		Unified: kernel.NewGroups("").Version() == 2, Pods: use.PodsGroup,
		Levels: k.KernelMemcgNotification,
	})
	m, err = eviction.New(eviction.Config{
		Thresholds: thresholds, Pressure: a.host.short,
		Transition: k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace:   time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
		Meter:      use.Meter(kernelTells), PodFacts: a.podFacts(ends),
		Journal: a.host.evicted,
		Reclaim: func(ctx context.Context, what eviction.Reclaim) (some bool, err error) {
			dead, old := 0, 0
			if what.Containers {
				dead, err = a.upkeep.FreeContainers(ctx)
			}
			if what.Images {
				var more error
				old, more = a.upkeep.FreeImages(ctx)
				err = errors.Join(err, more)
			}
			return dead+old > 0, err
		},
		Evict: ends.Evict,
		Tell:  n.events.OnNode, Registry: n.registry,
	})
	if err != nil || len(thresholds) == 0 {
		return m, nil, err
	}
	a.evictions = m
	return m, []part.Part{part.Of("evictions", m.Run), part.Of("memory as the kernel tells", kernelTells.Run)}, nil
}

// podFacts says for evictions what is known of pods.
func (a *Agent) podFacts(ends *eviction.Once) eviction.PodFacts {
	n, statuses := a.node, a.pods.statuses
	exclusive := func(uid types.UID) bool { return !n.store.State().Pods[uid].IsEmpty() }
	return eviction.PodFacts{
		Pods: ends.Pods, Exclusive: exclusive, Grace: podworker.Grace,
		Holds: func(uid types.UID) bool {
			observed, _ := a.host.pleg.Get(uid)
			return observed.Running() || exclusive(uid) || !statuses.Cleared(uid)
		},
		Known: a.pods.mayHave,
	}
}

func evicted(message string, ownLimit bool) pod.Why {
	return pod.Why{Reason: eviction.ReasonEvicted, Message: message, OwnLimit: ownLimit}
}

// doomed are the pods that an earlier run of the agent was about to evict.
func (h host) doomed(p *v1.Pod) (why pod.Why, grace time.Duration, ok bool) {
	last, ok := h.evicted.Doomed(p)
	if !ok {
		return why, 0, false
	}
	return evicted(last.Message, last.OwnLimit), last.Grace, true
}

// shortageRoute says what the node is short of.
func (a *Agent) shortageRoute() route.Route {
	return route.Get("/debug/shortage", func(w http.ResponseWriter, r *http.Request) {
		route.WriteJSON(w, a.Shortage(r.Context()))
	})
}

// Shortage says what the node is short of, and what was and will be done about it.
func (a *Agent) Shortage(ctx context.Context) eviction.Explanation {
	out := eviction.Explanation{Node: a.node.name}
	if a.evictions != nil { // else there are no thresholds, or the node is hollow
		out = a.evictions.Explain(ctx, a.node.name)
	}
	if cpus := a.node.hardware.Get().CPUs; cpus != nil {
		out.DriverCPUs = cpus.Lent().String()
	}
	return out
}

// Pressure says in a line for each condition of pressure what is short.
func (a *Agent) Pressure() []string {
	if a.evictions == nil {
		return nil
	}
	return a.evictions.Pressure()
}
