package hollow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/admission/handlers"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/allocation/store"
	"github.com/numalet/numalet/agent/event"
	"github.com/numalet/numalet/agent/housekeeping"
	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/kubeapi/nodes"
	"github.com/numalet/numalet/agent/kubeapi/nrt"
	"github.com/numalet/numalet/agent/kubeapi/podsource"
	"github.com/numalet/numalet/agent/kubeapi/statuses"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/resize"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/agent/syncloop"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/internal/mailbox"
)

// node is one node: its name, what it shares with others, and its parts.
type node struct {
	name    string
	address string
	shape   *shape
	kube    *kubeapi.Client
	bootID  string

	store    *store.Store
	owned    *nodes.Owned
	events   *event.Recorder
	runtime  *runtime
	statuses *podstatus.Store
	kept     *nodes.Nodes
	run      []func(context.Context) error
}

// join makes the node's parts. Only the event recorder runs yet, until ctx ends.
func (n *node) join(ctx context.Context, root string, podAddress func() string) error {
	dir := filepath.Join(root, n.name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of node %s: %w", n.name, err)
	}
	var err error
	if n.store, err = store.Open(dir); n.store == nil {
		return err
	}
	log := klog.FromContext(ctx)
	if err != nil {
		log.Error(err, "The recorded assignments are lost", "node", n.name)
	}
	graces := n.shape.cfg.DevicePlugins.Graces
	if n.owned, err = nodes.OpenOwned(dir, graces.Capacity); err != nil {
		log.Error(err, "Which resources are ours is not known", "node", n.name)
	}
	n.events = event.New(ctx, n.name)
	n.events.Send(kubeapi.EventSink(n.kube.Events()))
	n.runtime = newRuntime(n.address, podAddress)
	told, err := statuses.New(statuses.Config{Client: n.kube.Main()})
	if err != nil {
		return err
	}
	pods := mailbox.New[syncloop.Event]()
	n.statuses = podstatus.New(podstatus.Config{
		Node:       status.Node{Runtime: runtimeName},
		HostIPs:    func() []string { return []string{n.address} },
		Infeasible: resize.Policies{StaticCPUs: true}.Infeasible,
		Ending:     func(uid types.UID) { pods.Put(syncloop.Ending(uid)) },
		Wrote:      told.Wrote,
	})
	n.kept = n.keep()
	mux := source.NewMux(source.MuxConfig{Feeds: []source.Feed{podsource.New(podsource.Config{
		Client: n.kube.Main(), Node: n.name,
		Report: func(p source.Problem) { log.Info("A pod is ignored", "node", n.name, "why", p) },
		Saw: func(all []*v1.Pod) []*v1.Pod {
			told.Saw(all)
			return all
		},
		Restored: mailbox.Subscribe(n.kube.Restored()),
	})}})
	n.run = append(n.run, n.store.Run, told.Run, n.kept.Run, n.topology().Run, mux.Run)
	n.joinPods(mux, pods)
	return nil
}

// joinPods makes the parts that decide on the node's pods and run them.
func (n *node) joinPods(mux *source.Mux, events *mailbox.Box[syncloop.Event]) {
	decisions := mailbox.New[admission.Result]()
	queue := admission.New(n.admission(decisions.Put, events.Put))
	workers := podworker.New(n.workers(events.Put))
	observed := make(chan types.UID)
	loop := syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{
			Updates: mux.Updates(), Observed: observed, Decisions: decisions, Events: events,
		},
		Runtime: n.runtime.get, Admission: queue, Workers: workers, Statuses: n.statuses,
		Tell: n.events.Pod, SeenAll: mux.SeenAll,
	})
	none := func() ([]types.UID, error) { return nil, nil }
	orphans := housekeeping.Orphans{
		Running: n.runtime.all, Assigned: n.store.State, Directories: none, Cgroups: none,
		Known: func(uid types.UID) bool {
			_, known := n.statuses.Get(uid)
			return known
		},
		Found: func(o *v1.Pod) {
			events.Put(syncloop.Event{UID: o.UID, Event: pod.Event{Kind: pod.Orphaned, Pod: o}})
		},
	}
	look := housekeeping.New(housekeeping.Task{
		Name: "orphaned pods", Period: orphansPeriod, Run: orphans.Find,
	})
	n.run = append(n.run, queue.Run, workers.Run, loop.Run, look.Run,
		func(ctx context.Context) error { return n.runtime.forward(ctx, observed) })
}

// admission returns the configuration of admission.
func (n *node) admission(report func(admission.Result),
	tell func(syncloop.Event)) admission.Config {
	return admission.Config{
		Hardware: n.shape.hardware.Get, Rules: n.shape.rules, Node: n.kept.Node,
		Handlers: []decide.Handler{
			flaws, handlers.Placement(n.shape.rules),
			handlers.Sysctls(n.shape.cfg.Kubelet.AllowedUnsafeSysctls),
			handlers.OS, handlers.Affinity, handlers.Ports, handlers.Taints,
		},
		Store: n.store, Plugins: n.shape.devices, BootID: n.bootID,
		Wait: n.shape.cfg.DevicePlugins.Wait, Report: report,
		Preempt: func(one admission.Preemption) {
			const message = "Preempted in order to admit critical pod"
			n.events.Pod(one.Victim, v1.EventTypeWarning, status.ReasonPreempting, message)
			tell(syncloop.Event{UID: one.Victim.UID, Event: pod.Event{Kind: pod.Killed,
				Why: pod.Why{Reason: status.ReasonPreempting, Message: message}}})
		},
		Unadvised: func(*v1.Pod, allocation.AskKey, error) {}, // no plugin is asked
	}
}

// flaws refuses pods that break a rule that the node relies on.
func flaws(a decide.Attempt) *decide.Refusal {
	if why := source.Flaw(a.Pod); why != "" {
		return &decide.Refusal{Reason: source.FailedValidation, Message: why}
	}
	return nil
}

// workers returns the configuration of the pod workers.
func (n *node) workers(tell func(syncloop.Event)) podworker.Config {
	statuses := podstatus.Reporter{Statuses: n.statuses, Terminations: noMessages{}}
	k := &n.shape.cfg.Kubelet
	return podworker.Config{
		Actuator: n.runtime, Probed: n.runtime.probed,
		Keep: podworker.Retention{
			Dead: int(n.shape.cfg.DeadContainers.PerContainer), Age: n.shape.cfg.DeadContainers.Age,
		},
		Report: func(r podworker.Report) {
			statuses.Report(r)
			removed := r.Stop != nil && r.Stop.Remove // Gone reports this when it is done
			if r.Err == nil && r.Decision.State == podworker.Finished && !removed {
				tell(syncloop.Event{UID: r.Pod.UID, Event: pod.Event{Kind: pod.Ended}})
			}
		},
		Gone: func(uid types.UID) {
			tell(syncloop.Event{UID: uid, Event: pod.Event{Kind: pod.Gone}})
		},
		BackOff: podworker.BackOff{Max: k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration},
		Sync:    k.SyncFrequency.Duration,
		Attempt: func(pod *v1.Pod, container string) uint32 {
			return status.Attempt(n.statuses.Status(pod.UID), container)
		},
	}
}

// noMessages stands for containers without termination messages.
type noMessages struct{}

func (noMessages) TerminationMessage(*v1.Pod, *v1.Container, volume.Exit) (string, error) {
	return "", nil
}

// topology returns the writer of the node's NodeResourceTopology.
func (n *node) topology() *nrt.Writer {
	return nrt.New(nrt.Config{
		Apply: nrt.At(n.kube.Main()), Node: n.kept.Node,
		Facts: func() nrt.Facts {
			return n.shape.zones(n.store.State(), n.statuses.List())
		},
		Changed: mailbox.Subscribe(n.store.Changes(), n.statuses.Changes(), n.kept.Presence()),
		Again:   mailbox.Subscribe(n.kube.Restored()),
		Period:  n.shape.cfg.Kubelet.NodeStatusReportFrequency.Duration,
	})
}

// live runs the node until ctx ends or one of its parts fails.
func (n *node) live(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range n.run {
		group.Go(func() error { return run(ctx) })
	}
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return nil
}
