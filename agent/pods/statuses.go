package pods

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podstatus/kept"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// StatusConfig says what statuses say of the host; a hollow node has no host.
type StatusConfig struct {
	node.Node
	Runtime status.Node
	HostIPs func() []string
	// Get returns a pod as the runtime has it.
	Get func(types.UID) (cri.Pod, bool)
	// Kept are the statuses that an earlier run kept; nil: nothing was reported before.
	Kept *kept.Statuses
	// Devices and Volumes return what is known of the health of a pod's devices and volumes; nil: statuses
	// do not have it.
	Devices func(types.UID) map[string][]v1.ResourceStatus
	Volumes func(types.UID) map[string][]v1.VolumeHealthCondition
	// Over hears of pods whose lives are over, maybe before they begin again; nil: nothing does.
	Over       func(types.UID)
	Publishers []Publisher
	Metrics    Metrics
	// Events take what parts of the agent say of pods.
	Events *mailbox.Box[syncloop.Event]
}

// Statuses are the last status of every pod, with who is told of it.
type Statuses struct {
	*podstatus.Store
	publishers
	node   node.Node
	get    func(types.UID) (cri.Pod, bool)
	kept   *kept.Statuses
	events *mailbox.Box[syncloop.Event]
}

// OpenKept reads the statuses of static pods that an earlier run of the agent kept.
func OpenKept(ctx context.Context, n node.Node) (*kept.Statuses, error) {
	s, err := kept.Open(ctx, n.Settings.RootDir)
	return s, n.Quarantined(ctx, err, "KeptStatusesQuarantined", "static pods are not ready until "+
		"their probes have answered again")
}

// NewStatuses makes the store of pods' statuses. The ends of pods are events.
func NewStatuses(c StatusConfig) *Statuses {
	s := &Statuses{node: c.Node, get: c.Get, kept: c.Kept, events: c.Events,
		publishers: publishers{c.Publishers, new(atomic.Bool)}}
	k := &c.Settings.Kubelet
	cfg := podstatus.Config{
		ProbeAnew: c.Enabled("ChangeContainerStatusOnKubeletRestart"),
		Node:      c.Runtime, HostIPs: c.HostIPs, Devices: c.Devices, Volumes: c.Volumes,
		Infeasible: resize.Policies{
			StaticCPUs:   k.CPUManagerPolicy == "static",
			StaticMemory: k.MemoryManagerPolicy == "Static",
		}.Infeasible,
		Ending: func(uid types.UID) { c.Events.Put(syncloop.Of(uid, pod.Ending)) },
		Wrote: func(change podstatus.Change) {
			c.Metrics.Status(change)
			if c.Over != nil && change.LifeOver() {
				c.Over(change.Pod.UID)
			}
			s.status(change)
		},
	}
	if c.Kept != nil {
		s.all = append(s.all, Publisher{Name: "kept statuses", Status: c.Kept.Wrote, Heard: c.Kept.Heard, Run: c.Kept.Run})
		cfg.Recall = func(pod *v1.Pod) v1.PodStatus {
			observed, recorded := c.Get(pod.UID)
			return c.Kept.RecallFor(pod, observed, recorded)
		}
	}
	s.Store = podstatus.New(cfg)
	return s
}

// Known reports whether there is a pod of that UID.
func (s *Statuses) Known(uid types.UID) bool {
	_, known := s.Get(uid)
	return known
}

// Whole reports whether all pods of the node are known: what all sources had at first was taken in.
func (s *Statuses) Whole() bool { return s.complete.Load() }

// MayHave reports whether the node has a pod, or may have it.
func (s *Statuses) MayHave(uid types.UID) bool {
	whole := s.Whole() // before: what is taken in meanwhile may be the pod
	return s.Known(uid) || !whole
}

// Runs reports whether the runtime says that something of the pod runs.
func (s *Statuses) Runs(uid types.UID) bool {
	observed, _ := s.get(uid)
	return observed.Running()
}

// kill has the syncLoop end a pod.
func (s *Statuses) kill(uid types.UID, why pod.Why, grace time.Duration) {
	s.events.Put(syncloop.Killed(uid, why, grace))
}

// Refuse ends a pod that the kubelet would reject since it has waited long for more volumes than the node
// takes.
func Refuse(n node.Node, m Metrics, events *mailbox.Box[syncloop.Event]) func(*v1.Pod, string) {
	return func(ends *v1.Pod, message string) {
		m.Rejected(podspec.ReasonVolumeLimit)
		n.Events.Pod(ends, v1.EventTypeWarning, podspec.ReasonVolumeLimit, message)
		events.Put(syncloop.Killed(ends.UID,
			pod.Why{Reason: podspec.ReasonVolumeLimit, Message: status.Refusal + message}, 0))
	}
}

// Evict ends a pod for the node's sake.
func (s *Statuses) Evict(e eviction.Eviction) {
	s.kill(e.Pod.UID, evicted(e.Message, e.OwnLimit), e.Grace)
}

// EvictionFacts say for evictions what is known of pods, beside which may be evicted.
func (s *Statuses) EvictionFacts(assigned *store.Store) eviction.PodFacts {
	exclusive := func(uid types.UID) bool { return !assigned.State().Pods[uid].IsEmpty() }
	return eviction.PodFacts{
		Exclusive: exclusive, Grace: podworker.Grace, Known: s.MayHave,
		Holds: func(uid types.UID) bool { return s.Runs(uid) || exclusive(uid) || !s.Cleared(uid) },
	}
}

// Down ends a pod since the machine goes down.
func (s *Statuses) Down(p *v1.Pod, grace time.Duration) { s.kill(p.UID, shutDown(), grace) }

// ShutdownFacts say for a shutdown what is known of pods.
func (s *Statuses) ShutdownFacts(assigned *store.Store) shutdown.PodFacts {
	return shutdown.PodFacts{
		Pods:  func() []*v1.Pod { return s.Running(s.Runs) },
		Grace: podworker.Grace, Known: s.MayHave,
		Left: func(uid types.UID) bool {
			state := assigned.State()
			return s.Left(uid) || s.Runs(uid) || !state.Pods[uid].IsEmpty() ||
				slices.ContainsFunc(state.Owed, func(o allocation.Owed) bool { return o.UID == uid })
		},
		Changed: mailbox.Subscribe(s.Changes(), assigned.Changes()),
		Synced:  s.Synced,
	}
}

// Why pods end that the node ends.

func evicted(message string, ownLimit bool) pod.Why {
	return pod.Why{Reason: eviction.ReasonEvicted, Message: message, OwnLimit: ownLimit}
}

func shutDown() pod.Why { return pod.Why{Reason: podspec.ReasonShutdown, Message: shutdown.Message} }

func deviceFailed(message string) pod.Why {
	return pod.Why{Reason: podspec.ReasonDeviceFailed, Message: message}
}
