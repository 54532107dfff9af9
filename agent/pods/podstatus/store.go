// Package podstatus holds the last status of every pod that the agent reports, and makes statuses
// from what a pod's worker saw.
package podstatus

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// Config configures a store.
type Config struct {
	Node status.Node
	// HostIPs are the node's addresses now, the primary one first; nil: it has none.
	HostIPs func() []string
	// Recall returns the last status that an earlier run of the agent reported of a pod, unless the
	// pod's object has it; nil, or the zero value: unknown.
	Recall func(*v1.Pod) v1.PodStatus
	// ProbeAnew leaves out of what was reported before the agent's start what probes had found.
	ProbeAnew bool
	// Devices returns the health of a pod's devices by container; nil: it is not reported.
	Devices func(types.UID) map[string][]v1.ResourceStatus
	// Volumes returns what is known of the health of a pod's volumes; nil: it is not reported.
	Volumes func(types.UID) map[string][]v1.VolumeHealthCondition
	// Ending is called when an admitted pod has ended, before its final phase can be read: a reader
	// that acts on the phase finds that the node knows of the end. It must not block, nor call the
	// store. Optional.
	Ending func(types.UID)
	// Wrote is called with every change, in order. It must not block, nor write to the store.
	// Optional.
	Wrote func(Change)
}

// Change is a change of a pod's status or of its other reported facts.
type Change struct {
	// Pod is the pod as its source has it; it may have been allocated other resources.
	Pod           *v1.Pod
	Before, After v1.PodStatus // zero: none
	// First: nothing was found out here yet. After says that the pod is desired, or what the API
	// server or an earlier run of the agent reported of it.
	First bool
	// Again: an earlier life of a pod of that UID, of which something was found out, is over.
	Again bool
	// Cleared is the record's (pod.Facts).
	Cleared bool
}

// Begins reports whether the pod is new in the store, or begins again.
func (c Change) Begins() bool { return c.Before.Phase == "" }

// Ends reports whether the store has forgotten the pod.
func (c Change) Ends() bool { return c.After.Phase == "" }

// LifeOver reports whether what was remembered of the pod until now is of a life that is over:
// nothing of it is left on the node.
func (c Change) LifeOver() bool { return c.Again || c.Ends() }

// Store holds the pods of the node with their last statuses. A status stays until Forget, even when
// nothing of its pod is left. All methods may be called from anywhere.
//
// The syncLoop and the pod's worker write the same pod. A status is made without a lock; if another
// write came meanwhile, it is made again.
type Store struct {
	cfg Config
	view
}

// view reads the table.
type view struct{ *table }

// New returns a store without pods.
func New(cfg Config) *Store {
	if cfg.Ending == nil {
		cfg.Ending = func(types.UID) {}
	}
	if cfg.Wrote == nil {
		cfg.Wrote = func(Change) {}
	}
	if cfg.Recall == nil {
		cfg.Recall = func(*v1.Pod) v1.PodStatus { return v1.PodStatus{} }
	}
	return &Store{cfg: cfg, view: view{newTable(cfg.Ending, cfg.Wrote)}}
}

// Changes is published when a pod comes or goes, begins or ends to hold resources, changes its spec
// or phase, or is cleared.
func (v view) Changes() mailbox.Source { return &v.changed }

// Write carries out an effect of kind pod.Write. Nothing is written of a pod that has no status,
// unless it begins.
func (s *Store) Write(f pod.Effect) {
	why := status.Reason{Reason: f.Why.Reason, Message: f.Why.Message}
	if f.Status == pod.StatusPending {
		s.begin(f.Facts)
		return
	}
	s.table.update(f.Pod.UID, func(e entry) entry {
		e.Facts = f.Facts
		switch f.Status {
		case pod.StatusKept:
			if f.Pod.Status.StartTime != nil {
				e.status = status.Adopt(e.status, f.Pod.Status)
			}
			if podspec.Ended(e.status.Phase) { // no round of a worker takes it up
				e.status.ObservedGeneration = f.Pod.Generation
			}
		case pod.StatusCleared:
		case pod.StatusAdmitted:
			if !podspec.Ended(e.status.Phase) { // else its worker has yet to see to it
				e.status.Reason, e.status.Message = "", ""
			}
		case pod.StatusWaiting:
			e.status, e.first = status.Waiting(s.input(e), why), false
		case pod.StatusRejected:
			e.status, e.first = status.Rejected(s.input(e), why), false
		default:
			panic(fmt.Sprintf("podstatus: status %q", f.Status))
		}
		return e
	})
}

// begin makes the entry of a pod, perhaps again, from its spec alone.
func (s *Store) begin(f pod.Facts) {
	e := entry{Facts: f, first: true, status: s.cfg.Recall(f.Pod)}
	before, again := s.table.get(f.Pod.UID)
	if again && pod.Same(before.Pod, f.Pod) {
		e.status = status.Anew(before.status)
	}
	e.recalled = again || e.status.Phase != ""
	e.status = status.First(s.input(e))
	if !again {
		e.status = s.proven(e.Pod, e.status)
	}
	s.table.begin(e)
	s.recallAgain(e) // it may have become known before the pod was among those asked for again
}

// Forget drops a pod and its status.
func (s *Store) Forget(uid types.UID) { s.table.drop(uid) }

// Reconcile adopts what others wrote into the status of a pod that is otherwise unchanged, and
// returns what may follow from it.
func (s *Store) Reconcile(p *v1.Pod) (news pod.News) {
	before, ok := s.table.get(p.UID)
	if !ok {
		return pod.NoNews
	}
	if podspec.Ended(p.Status.Phase) {
		s.table.endedAt(p.UID, p.Status.Phase)
	}
	switch api := p.Status; {
	case podspec.Ended(api.Phase) && !podspec.Ended(before.status.Phase):
		news = pod.EndNews
	case status.GatesDiffer(p, before.status, api):
		news = pod.GateNews
	}
	if after := status.Adopt(before.status, p.Status); !equality.Semantic.DeepEqual(
		after, before.status) {
		s.table.update(p.UID, func(e entry) entry {
			e.status = status.Adopt(e.status, p.Status)
			return e
		})
	}
	return news
}

// saw makes a status from what a worker saw of the pod, and returns it. An end that was reported
// before anything of the pod could be seen stays as reported until something is seen.
func (s *Store) saw(round podworker.Report, of func(status.Input) v1.PodStatus) (
	v1.PodStatus, bool) {
	return s.table.update(round.Pod.UID, func(e entry) entry {
		e.first = false
		e.seen = e.seen || len(round.Observed.Sandboxes) > 0 || len(round.Observed.Containers) > 0
		if e.seen || !e.EndedUnseen || !podspec.Ended(e.status.Phase) {
			e.status = of(s.input(e))
		}
		return e
	})
}

func (s *Store) input(e entry) status.Input {
	in := status.Input{Pod: e.Pod, Previous: e.status, Node: s.cfg.Node, Now: time.Now(),
		Resize: status.Resize{
			Pending:    status.Reason{Reason: e.Resize.Pending.Reason, Message: e.Resize.Pending.Message},
			InProgress: e.Resize.InProgress, Error: e.Resize.Error, Generation: e.Resize.Generation,
		}}
	if s.cfg.HostIPs != nil {
		in.Node.HostIPs = s.cfg.HostIPs()
	}
	if s.cfg.Devices != nil {
		in.Devices = s.cfg.Devices(e.Pod.UID)
	}
	if s.cfg.Volumes != nil {
		in.Volumes = s.cfg.Volumes(e.Pod.UID)
	}
	return in
}

// AtSource returns the spec of a pod, with the phase that its source has of it once it has ended there.
func (v view) AtSource(uid types.UID) (*v1.Pod, bool) {
	e, ok := v.get(uid)
	if !ok || e.sourceEnd == "" {
		return e.Pod, ok
	}
	pod := *e.Pod
	pod.Status.Phase = e.sourceEnd
	return &pod, true
}

// Get returns the spec of a pod.
func (v view) Get(uid types.UID) (*v1.Pod, bool) {
	e, ok := v.get(uid)
	return e.Pod, ok
}

// Status returns the last status of a pod; the zero value if there is none.
func (v view) Status(uid types.UID) v1.PodStatus {
	e, _ := v.get(uid)
	return e.status
}

// List returns every pod as its source has it, with its status, ordered by namespace and name. The
// specs are shared and must not be modified.
func (v view) List() []*v1.Pod { return v.list(entry.Shown) }

// Allocated is List with the resources that the pods were allocated.
func (v view) Allocated() []*v1.Pod { return v.list(func(e entry) *v1.Pod { return e.Pod }) }

// Limited is List without the pods that may be active for as long as they like.
func (v view) Limited() []*v1.Pod {
	return v.list(func(e entry) *v1.Pod {
		if p := e.Shown(); p.Spec.ActiveDeadlineSeconds != nil {
			return p
		}
		return nil
	})
}

// list leaves out the pods of which it gets nil.
func (t *table) list(of func(entry) *v1.Pod) []*v1.Pod {
	out := []*v1.Pod{}
	for _, e := range t.all() {
		if spec := of(*e); spec != nil {
			p := *spec
			p.Status = e.status
			out = append(out, &p)
		}
	}
	slices.SortFunc(out, podspec.Compare)
	return out
}

// Active lists the specs of the pods that hold resources of the node: admitted and not ended.
func (v view) Active() []*v1.Pod { return v.specs(entry.active) }

// Running lists Active, and the other pods of which something runs: they are being ended, or have yet
// to be admitted after a restart of the agent.
func (v view) Running(runs func(types.UID) bool) []*v1.Pod {
	return v.specs(func(e entry) bool { return e.active() || runs(e.Pod.UID) })
}

// Holding lists Active, and the ended pods that still have an assignment: their resources are not
// free yet.
func (v view) Holding(assigned func(types.UID) bool) []*v1.Pod {
	return v.specs(func(e entry) bool {
		return e.active() || e.Admitted && assigned(e.Pod.UID)
	})
}

// Cleared reports whether nothing of a pod is left but records (pod.Facts), or it is not known.
func (v view) Cleared(uid types.UID) bool {
	e, known := v.get(uid)
	return !known || e.Cleared
}

// Left reports whether a pod was admitted, and more than records of it may be left. A pod that begins
// again has left nothing.
func (v view) Left(uid types.UID) bool {
	e, known := v.get(uid)
	return known && e.Admitted && !e.Cleared
}

// Undecided lists the specs of the pods that have yet to be admitted.
func (v view) Undecided() []*v1.Pod {
	return v.specs(func(e entry) bool { return !e.Admitted && !podspec.Ended(e.status.Phase) })
}

// Specs lists the specs of all pods.
func (v view) Specs() []*v1.Pod { return v.specs(func(entry) bool { return true }) }

func (t *table) specs(of func(entry) bool) (out []*v1.Pod) {
	for _, e := range t.all() {
		if of(*e) {
			out = append(out, e.Pod)
		}
	}
	return out
}
