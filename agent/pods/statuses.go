package pods

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/endings"
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
	// Endings end pods. Failures know what was done about failed devices; nil: a hollow node has none.
	Endings    *endings.Endings
	Failures   *health.FailureBook
	Publishers []Publisher
	Metrics    Metrics
	// Events take what parts of the agent say of pods.
	Events *mailbox.Box[syncloop.Event]
}

// Statuses are the last status of every pod, with who is told of it.
type Statuses struct {
	*podstatus.Store
	publishers
	Admitted resize.Admitted // what pods were allocated before

	node    node.Node
	get     func(types.UID) (cri.Pod, bool)
	kept    *kept.Statuses
	endings *endings.Endings
	events  *mailbox.Box[syncloop.Event]
}

// OpenKept reads the statuses of static pods that an earlier run of the agent kept.
func OpenKept(ctx context.Context, n node.Node) (*kept.Statuses, error) {
	s, err := kept.Open(ctx, n.Settings.RootDir)
	return s, n.Quarantined(ctx, err, "KeptStatusesQuarantined", "static pods are not ready until "+
		"their probes have answered again")
}

// OpenEndings reads which pods an earlier run of the agent was about to end. The ends of pods are events.
func OpenEndings(ctx context.Context, n node.Node, events *mailbox.Box[syncloop.Event]) (*endings.Endings, error) {
	e, err := endings.Open(n.Settings.RootDir, n.BootID, func(uid types.UID, why pod.Why, grace time.Duration) {
		events.Put(syncloop.Killed(uid, why, grace))
	})
	return e, n.Quarantined(ctx, err, "EndingsQuarantined", "pods that were about to end may run on")
}

// NewStatuses makes the store of pods' statuses.
func NewStatuses(c StatusConfig) *Statuses {
	s := &Statuses{node: c.Node, get: c.Get, kept: c.Kept, endings: c.Endings, events: c.Events,
		publishers: publishers{c.Publishers, new(atomic.Bool)}}
	var err error
	if s.Admitted, err = resize.Open(c.Settings.RootDir); err != nil {
		klog.Background().Error(err, "What a kubelet allocated pods is not known in full")
	}
	over := c.Endings.Over
	if failures := c.Failures; failures != nil {
		failures.Failed(func(uid types.UID, message string, until time.Time) {
			c.Endings.Recall(uid, deviceFailed(message), until)
		})
		over = func(uid types.UID) {
			c.Endings.Over(uid)
			failures.Over(uid)
		}
	}
	cfg := podstatus.Config{
		ProbeAnew: c.Enabled("ChangeContainerStatusOnKubeletRestart"),
		Node:      c.Runtime, HostIPs: c.HostIPs, Devices: c.Devices, Volumes: c.Volumes,
		Ending: func(uid types.UID) { c.Events.Put(syncloop.Of(uid, pod.Ending)) },
		Wrote: func(change podstatus.Change) {
			c.Metrics.Status(change)
			if change.LifeOver() {
				over(change.Pod.UID)
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

// Settled takes that what runs of a pod has the resources that it was allocated, or what keeps it from them.
func (s *Statuses) Settled(uid types.UID, err error) { s.events.Put(syncloop.Settled(uid, err)) }

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

// Refuse ends a pod that the kubelet would reject since it has waited long for more volumes than the node
// takes.
func Refuse(n node.Node, m Metrics, e *endings.Endings) func(*v1.Pod, string) {
	return func(ends *v1.Pod, message string) {
		m.Rejected(podspec.ReasonVolumeLimit)
		n.Events.Pod(ends, v1.EventTypeWarning, podspec.ReasonVolumeLimit, message)
		e.End(endings.Ending{UID: ends.UID,
			Why: pod.Why{Reason: podspec.ReasonVolumeLimit, Message: status.Refusal + message}})
	}
}

// Evict ends a pod for the node's sake.
func (s *Statuses) Evict(e eviction.Eviction) {
	s.endings.End(endings.Ending{UID: e.Pod.UID, Grace: e.Grace, Short: string(e.Signal),
		Why: pod.Why{Reason: eviction.ReasonEvicted, Message: e.Message, OwnLimit: e.OwnLimit}})
}

// EvictionFacts say for evictions what is known of pods, beside which may be evicted.
func (s *Statuses) EvictionFacts(assigned *store.Store) eviction.PodFacts {
	exclusive := func(uid types.UID) bool { return !assigned.State().Pods[uid].IsEmpty() }
	holds := func(uid types.UID) bool { return s.Runs(uid) || exclusive(uid) || !s.Cleared(uid) }
	return eviction.PodFacts{
		Exclusive: exclusive, Grace: podworker.Grace, Holds: holds,
		Last: func() (types.UID, eviction.Signal, bool) {
			uid, short, ok := s.endings.LastEviction(holds)
			return uid, eviction.Signal(short), ok
		},
	}
}

// Down ends a pod since the machine goes down. A pod of the API server does not run again in this boot; a static
// one runs again whenever the agent starts.
func (s *Statuses) Down(p *v1.Pod, grace time.Duration) {
	scope := endings.Boot
	if podspec.IsStatic(p) {
		scope = endings.Run
	}
	s.endings.End(endings.Ending{UID: p.UID, Grace: grace, Scope: scope,
		Why: pod.Why{Reason: podspec.ReasonShutdown, Message: shutdown.Message}})
}

// ShutdownFacts say for a shutdown what is known of pods.
func (s *Statuses) ShutdownFacts(assigned *store.Store) shutdown.PodFacts {
	return shutdown.PodFacts{
		Pods:  func() []*v1.Pod { return s.Running(s.Runs) },
		Grace: podworker.Grace,
		Left: func(uid types.UID) bool {
			state := assigned.State()
			return s.Left(uid) || s.Runs(uid) || !state.Pods[uid].IsEmpty() ||
				slices.ContainsFunc(state.PendingReleases, func(o allocation.PendingRelease) bool { return o.UID == uid })
		},
		Changed: mailbox.Subscribe(s.Changes(), assigned.Changes()),
		Synced:  s.Synced,
	}
}

// fail ends a pod whose devices failed.
func (s *Statuses) fail(p *v1.Pod, message string, grace time.Duration) {
	s.endings.End(endings.Ending{UID: p.UID, Why: deviceFailed(message), Grace: grace})
}

func deviceFailed(message string) pod.Why {
	return pod.Why{Reason: podspec.ReasonDeviceFailed, Message: message}
}
