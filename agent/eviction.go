package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/eviction/wake"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/route"
)

// newEvictions end pods of which the node says that they go: before memory, a disk or PIDs run out,
// and those that use more of the node's disk than they may. What may be removed first is removed by
// upkeep.
func (a *Agent) newEvictions() ([]part.Part, error) {
	ends := newEvictor(a.node, a.pods.statuses)
	manager, run, err := a.newEviction(ends)
	if err != nil || !*a.node.cfg.Kubelet.LocalStorageCapacityIsolation {
		return run, err
	}
	keeper := localstorage.NewKeeper(localstorage.KeeperConfig{
		Pods: ends.pods, Used: a.stats.Recent, Apart: eviction.ImagesApart,
		End: func(p *v1.Pod, e localstorage.Excess) {
			one := eviction.Eviction{Pod: p, Signal: eviction.Signal(e.Signal),
				Grace: time.Second, Words: eviction.Words{Message: e.Message}, OwnLimit: true}
			manager.Note(one)
			ends.evict(one)
		},
	})
	return append(run, part.Of("limits of local storage", keeper.Run)), nil
}

// newEviction ends pods before memory, a disk or PIDs run out.
func (a *Agent) newEviction(ends *evictor) (m *eviction.Manager, run []part.Part, err error) {
	n, k := a.node, &a.node.cfg.Kubelet
	thresholds, err := thresholdsOf(n.cfg)
	if err != nil {
		return nil, nil, err
	}
	use := usage{n, a.host, a.stats, a.disks}
	kernelTells := wake.New(wake.Config{
		Unified: kernel.NewGroups("").Version() == 2, Pods: use.podsGroup(),
		Levels: k.KernelMemcgNotification,
	})
	m, err = eviction.New(eviction.Config{
		Thresholds: thresholds, Pressure: a.host.short,
		Transition: k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace:   time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
		Meter:      use.meter(kernelTells), PodFacts: a.podFacts(ends),
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
		Evict: ends.evict,
		Tell:  n.events.OnNode, Registry: n.registry,
	})
	if err != nil || len(thresholds) == 0 {
		return m, nil, err
	}
	a.evictions = m
	return m, []part.Part{part.Of("evictions", m.Run), part.Of("memory as the kernel tells", kernelTells.Run)}, nil
}

// thresholdsOf are the thresholds of the settings. Where pods may request what hard eviction keeps free, they
// may use it too, as with the kubelet: what is left of the limit of all pods has no threshold.
func thresholdsOf(cfg *config.Config) ([]eviction.Threshold, error) {
	of := cfg.Kubelet
	if cfg.IgnoreEviction {
		of.EnforceNodeAllocatable = nil
	}
	return eviction.Parse(&of)
}

// podFacts says for evictions what is known of pods.
func (a *Agent) podFacts(ends *evictor) eviction.PodFacts {
	n, statuses := a.node, a.pods.statuses
	exclusive := func(uid types.UID) bool { return !n.store.State().Pods[uid].IsEmpty() }
	return eviction.PodFacts{
		Pods: ends.pods, Exclusive: exclusive, Grace: podworker.Grace,
		Holds: func(uid types.UID) bool {
			observed, _ := a.host.pleg.Get(uid)
			return observed.Running() || exclusive(uid) || !statuses.Cleared(uid)
		},
		Known: a.pods.mayHave,
	}
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

// usage says for evictions what the node and its pods use.
type usage struct {
	node  node
	host  host
	stats *stats.Collector
	disks *localstorage.Meter
}

// meter measures for evictions; the kernel tells when memory is short.
func (u usage) meter(tells *wake.Kernel) eviction.Meter {
	return eviction.Meter{
		Glance: u.glance, Measure: u.measure, Anew: u.disks.Anew, Woken: tells.Woken(),
		Arm: func(ctx context.Context, s eviction.Signal, left int64) {
			switch s {
			case eviction.MemoryAvailable:
				tells.Arm(ctx, "/", left)
			case eviction.AllocatableMemoryAvailable:
				tells.Arm(ctx, u.podsGroup(), left)
			}
		},
	}
}

// podsGroup is the cgroup of all pods; "": there is none.
func (u usage) podsGroup() string {
	if u.host.tree == nil {
		return ""
	}
	return u.host.tree.PodsPath()
}

// glance says what the node uses.
func (u usage) glance(context.Context) (statsapi.Summary, eviction.Host, error) {
	summary, s, err := u.stats.Kernel(false)
	return summary, u.onHost(s), err
}

// measure says what the node and its pods use. Of disks only the runtime knows all.
func (u usage) measure(ctx context.Context, of eviction.Signal) (eviction.Measured, error) {
	if u.host.tree != nil && !of.OnDisk() {
		summary, s, _ := u.stats.Kernel(true) // what could not be read is short of nothing
		return eviction.Measured{Summary: summary, Host: u.onHost(s), At: s.At}, nil
	}
	summary, s, err := u.stats.Measure(ctx, of.OnDisk())
	if err != nil {
		return eviction.Measured{}, err
	}
	out := eviction.Measured{Summary: summary, Host: u.onHost(s), At: s.At}
	if of.OnDisk() {
		out.Beyond = beyond(u.disks.Beyond(ctx), s)
	}
	return out, nil
}

// beyond says what pods use of disks beyond their statistics.
func beyond(all map[types.UID]localstorage.Beyond, s *stats.Snapshot) map[types.UID]eviction.Beyond {
	amount := func(u diskusage.Usage) eviction.Held {
		return eviction.Held{Bytes: int64(u.Bytes), Inodes: int64(u.Inodes)}
	}
	out := make(map[types.UID]eviction.Beyond, len(all))
	for uid, one := range all {
		out[uid] = eviction.Beyond{Node: amount(one.Held.On), Layers: amount(one.Held.Layers),
			Grown: int64(one.Grown), Partial: one.Partial || one.Held.Partial}
	}
	for _, p := range s.Pods {
		uid := types.UID(p.Stats.PodRef.UID)
		one := out[uid]
		one.Partial = one.Partial ||
			slices.ContainsFunc(p.Containers, func(c stats.Container) bool { return c.Partial })
		out[uid] = one
	}
	return out
}

// onHost says how much memory the machine has, and all pods together may use.
func (u usage) onHost(s *stats.Snapshot) eviction.Host {
	host := eviction.Host{Memory: int64(s.Machine.Memory)}
	if slices.Contains(u.node.cfg.Kubelet.EnforceNodeAllocatable, "pods") {
		h := u.node.hardware.Get()
		limit := h.Capacity[v1.ResourceMemory].DeepCopy()
		limit.Sub(h.Reservation.Reserved[v1.ResourceMemory])
		host.PodsCapacity = limit.Value()
	}
	return host
}
