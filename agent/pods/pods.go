// Package pods is the road of the node's pods, from their sources to their workers.
package pods

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/pods/deadline"
	"github.com/numalet/numalet/agent/pods/endings"
	"github.com/numalet/numalet/agent/pods/notices"
	"github.com/numalet/numalet/agent/pods/orphans"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/topology/podspec"
)

// Config has what the road is made of. All fields are required but Trace and Cluster.
type Config struct {
	*Statuses
	// Queue configures admission; its outcomes are the floor's own. Capacity is published when a pod that
	// waits may have another answer.
	Queue    placement.QueueConfig
	Capacity []mailbox.Source
	Ends     Ends
	Metrics  Metrics
	Trace    Trace    // nil: nothing is traced
	Cluster  *Cluster // nil: the node is in no cluster
}

// Cluster has the pods of the API server.
type Cluster struct {
	// Feed makes their source, which reports those that it refuses. saw takes all of the node's and returns
	// those that are to run.
	Feed func(report func(complaint.Problem), running func() []cri.Pod, saw func([]*v1.Pod) []*v1.Pod) source.Feed
	// Written has pods of which the API server has the newest status, and Newest reports whether it has.
	Written *mailbox.Box[types.UID]
	Newest  func(types.UID) bool
}

// Ends are where the road of pods ends: on a machine at its runtime, in a hollow node in memory.
type Ends struct {
	Runtime  Runtime
	Actuator podworker.Actuator
	Probes   Probes
	Volumes  Volumes
	Records  Records
	Lost     func(*v1.Pod) string // nil: pods have no cgroups
	// Failed are containers to stop since a device failed; nil: there are none.
	Failed func(types.UID) map[string]string
	// Resized is told of pods that were allocated other resources, and answers with Settled; nil: nothing
	// runs that has any.
	Resized func(types.UID)
	Holds   func(types.UID) bool // nil: no pod has resource claims
}

// Runtime knows what runs; *lifecycle.PLEG does.
type Runtime interface {
	All() []cri.Pod
	Get(types.UID) (cri.Pod, bool)
	Changes() <-chan types.UID
}

// Probes know whether containers have started, live and are ready; *probe.Prober does.
type Probes interface {
	Probed(types.UID) map[string]status.Probed
	Follow(pod *v1.Pod, s v1.PodStatus, ending bool)
	Forget(types.UID)
}

// Volumes know when the files of a pod's volumes must be written again; *volume.Volumes does.
type Volumes interface {
	Due(pod *v1.Pod, now time.Time) time.Time
}

// Records know what pods' containers leave on the node; volume.Records does.
type Records interface {
	podstatus.Terminations
	HooksPending(*v1.Pod) map[string]uint32
}

// Metrics count what happens to pods; *metrics.Metrics does. None of its methods blocks.
type Metrics interface {
	Delivered(all []*v1.Pod)
	Rejected(reason string)
	Decided(report.Result)
	Preempted(resource string)
	Status(podstatus.Change)
	Stepped(was, is pod.Record, e pod.Event)
	Restarted(*v1.Pod)
	Round(podworker.Report)
	Gone(types.UID)
}

// Trace makes spans of admission and of actions; *tracing.Tracing does.
type Trace interface {
	Submitted(*v1.Pod)
	Decided(uid types.UID, outcome, reason, message string, waits bool)
	Action(ctx context.Context, pod *v1.Pod, name, action string) (context.Context, func(error))
}

// Pods is the floor.
type Pods struct {
	*Statuses
	Queue    *admission.Queue
	Workers  *podworker.Workers
	Sources  *source.Mux
	Problems *source.Problems

	c         Config
	loop      *syncloop.Loop
	notices   *notices.Notices
	deadlines *deadline.Keeper
}

// New makes the road from its end to its beginning: a part is given those below it, which answer through
// mailboxes.
func New(ctx context.Context, c Config) *Pods {
	p := &Pods{c: c, Statuses: c.Statuses, Problems: source.NewProblems()}
	n, decisions := p.node, mailbox.New[report.Result]()
	p.Queue = p.newQueue(decisions)
	p.notices = notices.New(notices.Config{
		Pod: n.Events.Pod, Container: n.Events.Container, Enabled: n.Enabled,
		Lacking: placement.Features(n.Identity, c.Queue.Supports).Lacking,
	})
	if p.c.Ends.Resized == nil {
		p.c.Ends.Resized = func(uid types.UID) { p.Settled(uid, nil) }
	}
	p.Workers = p.newWorkers()
	p.Sources = p.newSources(ctx)
	p.loop = syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{
			Updates: p.Sources.Updates(), Observed: p.c.Ends.Runtime.Changes(), Decisions: decisions,
			Events:   p.events,
			Capacity: mailbox.Subscribe(append(slices.Clip(c.Capacity), n.Hardware.Changes())...),
		},
		Runtime: p.c.Ends.Runtime.Get, Allocated: p.allocated, Resized: p.c.Ends.Resized, PendingKill: p.endings.PendingKill,
		Admission: traced{p.Queue, c.Trace}, Workers: p.Workers,
		Statuses: p.Store, Tell: n.Events.Pod, SeenAll: p.Sources.SeenAll, Heard: p.heard,
		Stepped: c.Metrics.Stepped, Restarted: c.Metrics.Restarted,
	})
	p.deadlines = deadline.New(deadline.Config{
		Pods: p.Limited, Changed: p.Changes(), Kill: p.late,
	})
	return p
}

// late ends a pod that has run for as long as it may.
func (p *Pods) late(ends *v1.Pod) {
	p.node.Events.Pod(ends, v1.EventTypeNormal, deadline.Reason, deadline.Message)
	p.endings.End(endings.Ending{UID: ends.UID, Why: pod.Why{Reason: deadline.Reason, Message: deadline.Message}})
}

// allocated returns the resources that an earlier run of the agent, or a kubelet, allocated a pod.
func (p *Pods) allocated(uid types.UID, observed cri.Pod) *podspec.Resources {
	if r := p.c.Queue.Store.State().Pods[uid].Resources; r != nil {
		return r
	}
	return p.Admitted.Of(observed)
}

// First lists the goroutines that run from the start, and Then those that begin once running pods were adopted.
func (p *Pods) First() []part.Part {
	first := append([]part.Part{part.Of("admission", p.Queue.Run), part.Of("pod workers", p.Workers.Run),
		part.Of("notices of pods", p.notices.Run),
		part.Of("endings", func(ctx context.Context) error { return p.endings.Work(ctx, p.MayHave) }),
	}, p.parts()...)
	if in := p.c.Cluster; in != nil {
		first = append(first, part.Each("what the API server knows", in.Written, p.Workers.Published))
	}
	return first
}

// Then is described at First.
func (p *Pods) Then() []part.Part {
	return []part.Part{part.Of("pod sources", p.Sources.Run), part.Of("syncLoop", p.loop.Run),
		part.Of("deadlines", p.deadlines.Run)}
}

// ComesRound fails if the syncLoop, which looks every syncFrequency, is stuck.
func (p *Pods) ComesRound() error {
	return p.loop.Healthy(time.Now(), max(2*p.node.Settings.Kubelet.SyncFrequency.Duration, 5*time.Minute))
}

// newQueue makes admission. Its outcomes go to decisions, and pods that make way for critical ones to events.
func (p *Pods) newQueue(decisions *mailbox.Box[report.Result]) *admission.Queue {
	q := p.c.Queue
	q.Decided = func(r report.Result) {
		p.c.Metrics.Decided(r)
		if p.c.Trace != nil {
			p.c.Trace.Decided(r.Pod.UID, string(r.Outcome), r.Reason, r.Message, r.Outcome == decide.Wait)
		}
		decisions.Put(r)
	}
	q.Preempt = p.preempt
	return placement.NewQueue(q)
}

// preempt ends a pod that makes way for a critical one.
func (p *Pods) preempt(of report.Preemption, reason, message string) {
	p.c.Metrics.Preempted(string(of.Resource))
	p.endings.End(endings.Ending{UID: of.Victim.UID, Why: pod.Why{Reason: reason, Message: message}})
}

// traced is admission whose requests begin spans.
type traced struct {
	*admission.Queue
	trace Trace // nil: they do not
}

// Submit implements syncloop.Admission.
func (t traced) Submit(pod *v1.Pod, adopt bool) {
	if t.trace != nil {
		t.trace.Submitted(pod)
	}
	t.Queue.Submit(pod, adopt)
}

// newWorkers makes the pod workers. Their reports become statuses; the end or removal of a pod becomes
// an event.
func (p *Pods) newWorkers() *podworker.Workers {
	settings, e := p.node.Settings, p.c.Ends
	k := &settings.Kubelet
	reporter := podstatus.Reporter{Statuses: p.Store, Terminations: e.Records, LogsDir: k.PodLogsDir}
	return podworker.New(podworker.Config{
		Actuator: e.Actuator, Keep: podworker.Retention{
			Dead: int(settings.DeadContainers.PerContainer), Age: settings.DeadContainers.Age,
		},
		Report: func(r podworker.Report) {
			p.notices.Look(r)
			p.c.Metrics.Round(r)
			if now, ok := reporter.Report(r); ok {
				e.Probes.Follow(r.Pod, now, r.Decision.State != podworker.SyncPod)
				if status.ResizeInProgress(&now) != nil {
					e.Resized(r.Pod.UID)
				}
			}
			if r.Ended() {
				p.events.Put(syncloop.Of(r.Pod.UID, pod.Ended))
			}
		},
		Gone: func(uid types.UID) {
			p.c.Metrics.Gone(uid)
			p.notices.Gone(uid)
			e.Probes.Forget(uid)
			p.events.Put(syncloop.Of(uid, pod.Gone))
		},
		BackOff: backOffOf(settings),
		Sync:    k.SyncFrequency.Duration, Trace: p.traceActions(), Known: p.known(reporter),
	})
}

// known says what workers ask others about. Of a node in a cluster also, whether the API server knows a status:
// the containers of a pod that gets unready stop only then.
func (p *Pods) known(reporter podstatus.Reporter) podworker.Known {
	e := p.c.Ends
	out := podworker.Known{
		Due: e.Volumes.Due, HooksPending: e.Records.HooksPending, Probed: e.Probes.Probed,
		Attempt: reporter.NextAttempt, Lost: e.Lost, Holds: e.Holds, Failed: e.Failed, Had: p.Admitted.Had,
	}
	if p.c.Cluster != nil {
		out.IsPublished = p.c.Cluster.Newest
	}
	return out
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
func (p *Pods) traceActions() func(context.Context, podworker.Report) (context.Context, func(error)) {
	if p.c.Trace == nil {
		return nil
	}
	return func(ctx context.Context, r podworker.Report) (context.Context, func(error)) {
		name := "sync" + strings.TrimPrefix(string(r.Decision.State), "Sync") // the kubelet's
		return p.c.Trace.Action(ctx, r.Pod, name, r.Decision.Action.String())
	}
}

// newSources reads manifests from where the configuration says, and the API server's pods.
func (p *Pods) newSources(ctx context.Context) *source.Mux {
	n, running, report := p.node, p.c.Ends.Runtime.All, p.Problems.Report
	cfg, k := n.Settings, &n.Settings.Kubelet
	var feeds []source.Feed
	if k.StaticPodPath != "" {
		feeds = append(feeds, source.NewFile(source.FileConfig{
			Path: k.StaticPodPath, Node: n.Name, Every: k.FileCheckFrequency.Duration,
			Strict: cfg.RefuseUnknownFields, Gates: cfg.Enabled, Report: report,
		}))
	}
	if k.StaticPodURL != "" {
		feeds = append(feeds, source.NewHTTP(source.HTTPConfig{
			URL: k.StaticPodURL, Header: k.StaticPodURLHeader, Node: n.Name,
			Every: k.HTTPCheckFrequency.Duration, Strict: cfg.RefuseUnknownFields,
			Gates: cfg.Enabled, Report: report,
		}))
	}
	if p.c.Cluster != nil {
		feeds = append(feeds, p.c.Cluster.Feed(report, running, p.saw))
	}
	return source.NewMux(source.MuxConfig{
		Feeds: feeds, Report: report, Identities: source.NewIdentities(
			filepath.Join(cfg.RootDir, source.IdentitiesFile), running, report,
			func(lost error) {
				_ = n.Quarantined(ctx, lost, "StaticPodIdentitiesQuarantined", "static pods that another "+
					"agent started and that do not run now start with another UID")
			}),
	})
}

// saw takes all pods that the API server has for the node, and returns those that are to run. The first mirror
// pods may show the statuses that an earlier run wrote: these are taken before any other status of a static pod
// is published.
func (p *Pods) saw(all []*v1.Pod) []*v1.Pod {
	if p.kept != nil && p.kept.Mirrored(all) {
		for _, uid := range p.RecallAgain() {
			p.Workers.Wake(uid)
		}
	}
	p.c.Metrics.Delivered(all)
	return p.delivered(all)
}

// Orphans is the task that finds what is left of pods that no source desires. remains list the pods
// that left something outside the runtime and the assignments.
func (p *Pods) Orphans(assigned func() allocation.State, period time.Duration,
	remains map[string]func() ([]types.UID, error)) housekeeping.Task {
	find := orphans.Search{
		Running: p.c.Ends.Runtime.All, Assigned: assigned, Remains: remains, Known: p.Known,
		Found: func(o *v1.Pod) { p.events.Put(syncloop.Orphaned(o)) },
	}
	return housekeeping.Task{Name: "orphaned pods", Period: period, Run: find.Find}
}

// Placed says for the floor of placement what is known of pods.
func (p *Pods) Placed() placement.Pods {
	s := p.Statuses
	return placement.Pods{
		Get: s.Get, Status: s.Status, Active: s.Active, Running: p.c.Ends.Runtime.All, Whole: s.Whole, MayHave: s.MayHave,
		Changed: s.Changes(), Refresh: p.Workers.Wake, Retry: p.Workers.Retry, Grace: podworker.Grace, End: s.fail,
	}
}
