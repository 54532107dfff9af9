package agent

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/podsource"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/deadline"
	"github.com/numalet/numalet/agent/pods/notices"
	"github.com/numalet/numalet/agent/pods/orphans"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/topology/podspec"
)

// podDomain is the road of the node's pods, from their sources to their workers.
type podDomain struct {
	statuses statusDomain
	queue    *admission.Queue
	workers  *podworker.Workers
	sources  *source.Mux
	problems *source.Problems
	admitted resize.Admitted // what pods were admitted with before
	loop     *syncloop.Loop
	// first run from the start, then once running pods were adopted.
	first, then []part.Part
}

// statusDomain is the last status of every pod, with its publishers.
type statusDomain struct {
	*podstatus.Store
	events *mailbox.Box[syncloop.Event] // what parts of the agent say of pods
	pubs   publishers
}

// statusEnds provide what statuses say of the host; a hollow node has no host.
type statusEnds struct {
	runtime   status.Node
	hostIPs   func() []string
	inventory func() devicemanager.Inventory
	claims    claimDomain                // none: no pod has any
	recall    func(*v1.Pod) v1.PodStatus // nil: nothing was reported before
	volumes   healthDomain
	// over hears of pods whose lives are over, maybe before they begin again; nil: nothing does.
	over func(types.UID)
}

// newStatuses makes the store of pods' statuses. The ends of pods are events.
func newStatuses(n node, pubs publishers, e statusEnds) statusDomain {
	events := mailbox.New[syncloop.Event]()
	c := podstatus.Config{
		ProbeAnew: n.cfg.Enabled("ChangeContainerStatusOnKubeletRestart"),
		Node:      e.runtime, HostIPs: e.hostIPs, Recall: e.recall, Volumes: e.volumes.of(),
		Infeasible: resize.Policies{
			StaticCPUs:   n.cfg.Kubelet.CPUManagerPolicy == "static",
			StaticMemory: n.cfg.Kubelet.MemoryManagerPolicy == "Static",
		}.Infeasible,
		Ending: func(uid types.UID) { events.Put(syncloop.Of(uid, pod.Ending)) },
		Wrote: func(c podstatus.Change) {
			n.metrics.Status(c)
			if e.over != nil && c.LifeOver() {
				e.over(c.Pod.UID)
			}
			pubs.wrote(c)
		},
	}
	if n.tellsDevices() {
		c.Devices = func(uid types.UID) map[string][]v1.ResourceStatus {
			return health.ResourceStatuses(n.store.State().Pods[uid],
				health.Sources{Inventory: e.inventory(), Drivers: e.claims.drivers.health},
				e.claims.cdi(uid))
		}
	}
	return statusDomain{podstatus.New(c), events, pubs}
}

// limited returns what ends a pod that the kubelet would reject since it has waited long for more
// volumes than the node takes.
func (s statusDomain) limited(n node) func(*v1.Pod, string) {
	return func(ends *v1.Pod, message string) {
		n.metrics.Rejected(podspec.ReasonVolumeLimit)
		n.events.Pod(ends, v1.EventTypeWarning, podspec.ReasonVolumeLimit, message)
		s.events.Put(syncloop.Killed(ends.UID,
			pod.Why{Reason: podspec.ReasonVolumeLimit, Message: status.Refusal + message}, 0))
	}
}

// tellsDevices reports whether statuses have the health of devices.
func (n node) tellsDevices() bool { return n.cfg.Gates.Enabled("ResourceHealthStatus") }

// podEnds are where the road of pods ends: on a machine at its runtime, in a hollow node in memory.
type podEnds struct {
	admissionEnds
	runtime  podRuntime
	actuator podworker.Actuator
	probes   probes
	volumes  volumes
	// doomed are pods that an earlier run of the agent was about to end; nil: there was none.
	doomed func(*v1.Pod) (pod.Why, time.Duration, bool)
	lost   func(*v1.Pod) string // nil: pods have no cgroups
	// failed are containers to stop since a device failed; nil: there are none.
	failed func(types.UID) map[string]string
	holds  func(types.UID) bool // nil: no pod has resource claims
}

// podRuntime knows what runs; *lifecycle.PLEG does.
type podRuntime interface {
	All() []cri.Pod
	Get(types.UID) (cri.Pod, bool)
	Changes() <-chan types.UID
}

// probes know whether containers have started, live and are ready; *probe.Prober does.
type probes interface {
	Probed(types.UID) map[string]status.Probed
	Follow(pod *v1.Pod, s v1.PodStatus, ending bool)
	Forget(types.UID)
}

// volumes know what pods have on the node besides containers; *volume.Volumes does.
type volumes interface {
	podstatus.Terminations
	Due(pod *v1.Pod, now time.Time) time.Time
	HooksPending(*v1.Pod) map[string]uint32
}

// newPods makes the road of pods from its end to its beginning: a part is given those below it, which
// answer through mailboxes.
func newPods(ctx context.Context, n node, s statusDomain, e podEnds) podDomain {
	problems, decisions := source.NewProblems(), mailbox.New[report.Result]()
	queue := newQueue(n, decisions, s.events, e.admissionEnds)
	look := notices.New(notices.Config{
		Pod: n.events.Pod, Container: n.events.Container, Lacking: featuresOf(e.supports.declared(n.cfg)).Lacking,
		Enabled: n.enabled,
	})
	workers := newWorkers(n, s, look, e)
	sources := newSources(ctx, n, problems.Report, e.runtime.All, func(all []*v1.Pod) []*v1.Pod {
		if s.pubs.mirrored(all) { // before any other status of a static pod is published
			for _, uid := range s.RecallAgain() {
				workers.Wake(uid)
			}
		}
		n.metrics.Delivered(all)
		return s.pubs.saw(all)
	})
	admitted, err := resize.Open(n.cfg.RootDir)
	if err != nil {
		klog.FromContext(ctx).Error(err, "What a kubelet admitted pods with is not known")
	}
	loop := syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{
			Updates: sources.Updates(), Observed: e.runtime.Changes(), Decisions: decisions,
			Events:   s.events,
			Capacity: mailbox.Subscribe(append(e.changed, n.hardware.Changes())...),
		},
		Runtime: e.runtime.Get, Admitted: admitted.Of, Doomed: e.doomed,
		Admission: traced{queue, n.trace}, Workers: workers,
		Statuses: s.Store, Tell: n.events.Pod, SeenAll: sources.SeenAll, Heard: s.pubs.heard,
		Restarted: n.metrics.Restarted,
	})
	deadlines := deadline.New(deadline.Config{
		Pods: s.Limited, Changed: s.Changes(),
		Kill: func(late *v1.Pod) {
			n.events.Pod(late, v1.EventTypeNormal, deadline.Reason, deadline.Message)
			s.events.Put(syncloop.Killed(late.UID,
				pod.Why{Reason: deadline.Reason, Message: deadline.Message}, 0))
		},
	})
	first := append([]part.Part{part.Of("admission", queue.Run), part.Of("pod workers", workers.Run),
		part.Of("notices of pods", look.Run)}, s.pubs.run...)
	if s.pubs.told != nil {
		first = append(first, part.Each("what the API server knows", s.pubs.told, workers.Told))
	}
	then := []part.Part{part.Of("pod sources", sources.Run), part.Of("syncLoop", loop.Run),
		part.Of("deadlines", deadlines.Run)}
	return podDomain{s, queue, workers, sources, problems, admitted, loop, first, then}
}

// newWorkers makes the pod workers. What they see becomes a status; that a pod has ended or is gone
// becomes an event.
func newWorkers(n node, s statusDomain, look *notices.Notices, e podEnds) *podworker.Workers {
	k := &n.cfg.Kubelet
	reporter := podstatus.Reporter{
		Statuses: s.Store, Terminations: e.volumes, LogsDir: k.PodLogsDir,
	}
	return podworker.New(podworker.Config{
		Actuator: e.actuator, Keep: podworker.Retention{
			Dead: int(n.cfg.DeadContainers.PerContainer), Age: n.cfg.DeadContainers.Age,
		},
		Report: func(r podworker.Report) {
			look.Look(r)
			n.metrics.Round(r)
			if now, ok := reporter.Report(r); ok {
				e.probes.Follow(r.Pod, now, r.Decision.State != podworker.SyncPod)
			}
			if r.Ended() {
				s.events.Put(syncloop.Of(r.Pod.UID, pod.Ended))
			}
		},
		Gone: func(uid types.UID) {
			n.metrics.Gone(uid)
			look.Gone(uid)
			e.probes.Forget(uid)
			s.events.Put(syncloop.Of(uid, pod.Gone))
		},
		BackOff: backOffOf(n.cfg),
		Sync:    k.SyncFrequency.Duration, Trace: n.traceActions(),
		Known: podworker.Known{
			Due: e.volumes.Due, HooksPending: e.volumes.HooksPending, Probed: e.probes.Probed,
			Attempt: reporter.NextAttempt, Lost: e.lost, Holds: e.holds, Failed: e.failed,
			Told: s.pubs.knows,
		},
	})
}

// backOffOf returns the delays of containers that keep exiting. With the gate
// ReduceDefaultCrashLoopBackOffDecay they begin at one second. The longest is the configuration's,
// without the gate KubeletCrashLoopBackOffMax the default.
func backOffOf(cfg *config.Config) podworker.BackOff {
	out := podworker.BackOff{Initial: podworker.DefaultInitial, Max: podworker.DefaultMax}
	if cfg.Enabled("ReduceDefaultCrashLoopBackOffDecay") {
		out = podworker.BackOff{Initial: podworker.ReducedInitial, Max: podworker.ReducedMax}
	}
	if cfg.Enabled("KubeletCrashLoopBackOffMax") {
		out.Max = cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	}
	out.Initial = min(out.Initial, out.Max)
	return out
}

// traceActions follows the actions of workers; nil if tracing is off.
func (n node) traceActions() func(context.Context, podworker.Report) (
	context.Context, func(error)) {
	if n.trace == nil {
		return nil
	}
	return func(ctx context.Context, r podworker.Report) (context.Context, func(error)) {
		name := "sync" + strings.TrimPrefix(string(r.Decision.State), "Sync") // the kubelet's
		return n.trace.Action(ctx, r.Pod, name, r.Decision.Action.String())
	}
}

// newSources reads manifests from where the configuration says, and the API server's pods. saw
// takes all of the latter and returns those that are to run.
func newSources(ctx context.Context, n node, report func(complaint.Problem), running func() []cri.Pod,
	saw func([]*v1.Pod) []*v1.Pod) *source.Mux {
	k := &n.cfg.Kubelet
	var feeds []source.Feed
	if k.StaticPodPath != "" {
		feeds = append(feeds, source.NewFile(source.FileConfig{
			Path: k.StaticPodPath, Node: n.name, Every: k.FileCheckFrequency.Duration,
			Strict: n.cfg.RefuseUnknownFields, Gates: n.cfg.Enabled, Report: report,
		}))
	}
	if k.StaticPodURL != "" {
		feeds = append(feeds, source.NewHTTP(source.HTTPConfig{
			URL: k.StaticPodURL, Header: k.StaticPodURLHeader, Node: n.name,
			Every: k.HTTPCheckFrequency.Duration, Strict: n.cfg.RefuseUnknownFields,
			Gates: n.cfg.Enabled, Report: report,
		}))
	}
	if n.kube != nil {
		feeds = append(feeds, podsource.New(podsource.Config{
			Client: n.kube.Main(), Node: n.name, Report: report, Saw: saw,
			Gates: n.cfg.Enabled, Restored: mailbox.Subscribe(n.kube.Restored()), Running: running,
		}))
	}
	return source.NewMux(source.MuxConfig{
		Feeds: feeds, Report: report, Identities: source.NewIdentities(
			filepath.Join(n.cfg.RootDir, source.IdentitiesFile), running, report,
			func(lost error) {
				_ = n.quarantined(ctx, lost, "StaticPodIdentitiesQuarantined", "static pods that another "+
					"agent started and that do not run now start with another UID")
			}),
	})
}

// orphans is the task that finds what is left of pods that nobody desires. remains list the pods of
// which something is left outside the runtime and the assignments.
func (p podDomain) orphans(n node, running func() []cri.Pod, period time.Duration,
	remains map[string]func() ([]types.UID, error)) housekeeping.Task {
	find := orphans.Search{
		Running: running, Assigned: n.store.State, Remains: remains, Known: p.knows,
		Found: func(o *v1.Pod) { p.statuses.events.Put(syncloop.Orphaned(o)) },
	}
	return housekeeping.Task{Name: "orphaned pods", Period: period, Run: find.Find}
}

// knows reports whether there is a pod of that UID.
func (p podDomain) knows(uid types.UID) bool {
	_, known := p.statuses.Get(uid)
	return known
}

// mayHave reports whether the node has a pod, or may have it: what all sources had at first was not
// taken in yet.
func (p podDomain) mayHave(uid types.UID) bool {
	whole := p.statuses.pubs.complete.Load() // before: what is taken in meanwhile may be the pod
	return p.knows(uid) || !whole
}
