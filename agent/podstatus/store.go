// Package podstatus keeps the last status of every pod that the agent tells of, and makes it of
// what a pod's worker saw.
package podstatus

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// Config is what statuses are made with.
type Config struct {
	Node status.Node
	// HostIPs are the node's addresses now, the primary one first; nil: it has none.
	HostIPs func() []string
	// Recall is what an earlier run of the agent told of a pod that does not say it itself; nil, or
	// the zero value: that is not known.
	Recall func(*v1.Pod) v1.PodStatus
	// Devices is the health of the devices that a pod holds, by container; nil: it is not told.
	Devices func(types.UID) map[string][]v1.ResourceStatus
	// Infeasible says why a pod is not given the resources that wanted, the same pod as its source has
	// it, asks for; nil: nothing is said.
	Infeasible func(pod, wanted *v1.Pod) string
	// Ending is told that an admitted pod has come to its end, before anybody can see its final
	// phase: what follows from the phase finds that the node knows of the end. nil: nobody is. It
	// must not block, nor call the store.
	Ending func(types.UID)
	// Wrote is told of every status that is written, in the order in which they were; nil: nobody
	// is. It must not block, nor write to the store.
	Wrote func(Change)
}

// Change is what was written of a pod.
type Change struct {
	// Pod is as its source has it: its resources may be others than it was admitted with.
	Pod           *v1.Pod
	Before, After v1.PodStatus // zero: none
	// First: After says no more than that the pod is desired, or what the API server said of it.
	First bool
	// Cleared: nothing of the pod runs or is held any more, and its volumes and cgroup are gone.
	Cleared bool
}

// Begins reports whether the store begins with the pod, maybe anew.
func (c Change) Begins() bool { return c.Before.Phase == "" }

// Ends reports whether the store has the pod no more.
func (c Change) Ends() bool { return c.After.Phase == "" }

// Store has the pods of the node with their last statuses. A status stays until Forget, also when
// nothing of its pod is left. All methods may be called from anywhere.
//
// The syncLoop and the pod's worker write the same pod. A status is made without a lock; if another
// one was written meanwhile, it is made again.
type Store struct {
	cfg     Config
	changed mailbox.Topic

	// telling is held from a write until Wrote has returned, so that nobody is told of an older
	// status after a newer one. It comes before mu.
	telling sync.Mutex

	mu      sync.Mutex // guards the fields below
	entries map[types.UID]entry
	version int // of the newest entry
}

// entry is replaced as a whole.
type entry struct {
	pod      *v1.Pod
	wanted   *v1.Pod // as its source has it, if that asks for other resources; nil: it does not
	admitted bool
	first    bool // nothing was found out of the pod yet
	cleared  bool
	// told: the pod's end was told before it could be seen here, or without anything to see.
	told bool
	// recalled: it is known what was told of the pod before, here or by an earlier run of the agent.
	recalled bool
	status   v1.PodStatus
	version  int
}

// New returns a store without pods.
func New(cfg Config) *Store {
	if cfg.Infeasible == nil {
		cfg.Infeasible = func(*v1.Pod, *v1.Pod) string { return "" }
	}
	if cfg.Ending == nil {
		cfg.Ending = func(types.UID) {}
	}
	if cfg.Wrote == nil {
		cfg.Wrote = func(Change) {}
	}
	if cfg.Recall == nil {
		cfg.Recall = func(*v1.Pod) v1.PodStatus { return v1.PodStatus{} }
	}
	return &Store{cfg: cfg, entries: map[types.UID]entry{}}
}

// Changes are published when there are other pods than before, others hold resources, or a pod is in
// another phase.
func (s *Store) Changes() mailbox.Source { return &s.changed }

// Pending begins with a pod, or begins with it anew, of which nothing is known but its spec. wanted
// is the pod as its source has it, if that asks for other resources; nil: it does not.
func (s *Store) Pending(pod, wanted *v1.Pod) {
	e := entry{pod: pod, wanted: wanted, first: true, status: s.cfg.Recall(pod)}
	before, again := s.get(pod.UID)
	if again && podspec.Name(before.pod) == podspec.Name(pod) {
		e.status = status.Anew(before.status)
	}
	e.recalled = again || e.status.Phase != ""
	e.status = status.First(s.input(e))
	e.told = status.Ended(e.status.Phase)
	s.telling.Lock()
	defer s.telling.Unlock()
	s.put(pod.UID, e)
	s.changed.Publish()
	s.cfg.Wrote(Change{Pod: e.shown(), After: e.status, First: true})
}

// Follow takes another spec of the pod; wanted is as with Pending.
func (s *Store) Follow(pod, wanted *v1.Pod) {
	s.update(pod.UID, func(e entry) entry {
		e.pod, e.wanted = pod, wanted
		if pod.Status.StartTime != nil {
			e.status = status.Adopt(e.status, pod.Status)
		}
		if status.Ended(e.status.Phase) { // no round of a worker takes it up
			e.status.ObservedGeneration = pod.Generation
		}
		return e
	})
}

// Reconciled is what others have written into the status of a pod, as far as anything follows.
type Reconciled int

// What others have written.
const (
	Nothing Reconciled = iota
	// Gates: a condition that a readiness gate of the pod waits for.
	Gates
	// Ended: that the pod has ended, of which nothing is known here.
	Ended
)

// Reconcile takes what others have written into the status of a pod, which is otherwise as it was.
func (s *Store) Reconcile(pod *v1.Pod) (news Reconciled) {
	before, ok := s.get(pod.UID)
	if !ok {
		return Nothing
	}
	switch api := pod.Status; {
	case status.Ended(api.Phase) && !status.Ended(before.status.Phase):
		news = Ended
	case status.GatesDiffer(pod, before.status, api):
		news = Gates
	}
	if after := status.Adopt(before.status, pod.Status); !equality.Semantic.DeepEqual(
		after, before.status) {
		s.update(pod.UID, func(e entry) entry {
			e.status = status.Adopt(e.status, pod.Status)
			return e
		})
	}
	return news
}

// Cleared takes that nothing of the pod runs or is held any more, and its volumes and cgroup are
// gone: the API server may delete it if it is to.
func (s *Store) Cleared(uid types.UID) {
	s.update(uid, func(e entry) entry {
		e.cleared = true
		return e
	})
}

// Admitted takes that the pod has what it requests: from now on it holds resources of the node.
func (s *Store) Admitted(uid types.UID) {
	s.update(uid, func(e entry) entry {
		e.admitted = true
		if !status.Ended(e.status.Phase) { // of one that has, a worker has yet to see to it
			e.status.Reason, e.status.Message = "", ""
		}
		return e
	})
}

// Waiting takes why the pod has no place yet, Rejected why it gets none.
func (s *Store) Waiting(uid types.UID, why status.Reason) {
	s.update(uid, func(e entry) entry {
		e.status, e.first = status.Waiting(s.input(e), why), false
		return e
	})
}

// Rejected takes why the pod is not admitted.
func (s *Store) Rejected(uid types.UID, why status.Reason) {
	s.update(uid, func(e entry) entry {
		e.status, e.first, e.told = status.Rejected(s.input(e), why), false, true
		return e
	})
}

// saw makes the status anew of what a worker saw of the pod, and returns it. An end that was told
// without anything to see stays as it was told while there is nothing to see.
func (s *Store) saw(round podworker.Report, of func(status.Input) v1.PodStatus) (
	v1.PodStatus, bool) {
	return s.update(round.Pod.UID, func(e entry) entry {
		seen := len(round.Observed.Sandboxes) > 0 || len(round.Observed.Containers) > 0
		if e.first = false; seen || !e.told {
			e.status, e.told = of(s.input(e)), false
		}
		return e
	})
}

func (s *Store) input(e entry) status.Input {
	in := status.Input{Pod: e.pod, Previous: e.status, Node: s.cfg.Node, Now: time.Now()}
	if e.wanted != nil {
		in.Infeasible = s.cfg.Infeasible(e.pod, e.wanted)
	}
	if s.cfg.HostIPs != nil {
		in.Node.HostIPs = s.cfg.HostIPs()
	}
	if s.cfg.Devices != nil {
		in.Devices = s.cfg.Devices(e.pod.UID)
	}
	return in
}

// update replaces the entry of a pod by what change makes of it, which may be called again, and
// returns the status then; false: the pod was forgotten.
func (s *Store) update(uid types.UID, change func(entry) entry) (v1.PodStatus, bool) {
	for {
		before, ok := s.get(uid)
		if !ok {
			return v1.PodStatus{}, false
		}
		if after := change(before); s.replace(uid, before, after) {
			return after.status, true
		}
	}
}

func (s *Store) get(uid types.UID) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[uid]
	return e, ok
}

// replace writes next and tells of it, if before is still the pod's entry; it reports whether it is.
func (s *Store) replace(uid types.UID, before, next entry) bool {
	s.telling.Lock()
	defer s.telling.Unlock()
	if now, ok := s.get(uid); !ok || now.version != before.version {
		return false
	}
	if before.active() && status.Ended(next.status.Phase) {
		s.cfg.Ending(uid)
	}
	s.put(uid, next)
	if next.active() != before.active() || next.shown() != before.shown() ||
		next.status.Phase != before.status.Phase {
		s.changed.Publish()
	}
	s.cfg.Wrote(Change{next.shown(), before.status, next.status, next.first, next.cleared})
	return true
}

// put is called with telling held.
func (s *Store) put(uid types.UID, e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	e.version = s.version
	s.entries[uid] = e
}

// Forget drops a pod and its status.
func (s *Store) Forget(uid types.UID) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if e, ok := s.take(uid); ok {
		s.cfg.Wrote(Change{Pod: e.shown(), Before: e.status})
	}
}

func (s *Store) take(uid types.UID) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[uid]
	delete(s.entries, uid)
	s.changed.Publish()
	return e, ok
}

// Infeasible says why a pod is not given the resources that wanted asks for.
func (s *Store) Infeasible(pod, wanted *v1.Pod) string { return s.cfg.Infeasible(pod, wanted) }

// Get is the spec of a pod.
func (s *Store) Get(uid types.UID) (*v1.Pod, bool) {
	e, ok := s.get(uid)
	return e.pod, ok
}

// Status is the last status of a pod; the zero value if there is none.
func (s *Store) Status(uid types.UID) v1.PodStatus {
	e, _ := s.get(uid)
	return e.status
}

// List is every pod, as its source has it, with its status, ordered by namespace and name. The specs
// are shared and must not be written to.
func (s *Store) List() []*v1.Pod { return s.list(entry.shown) }

// Allocated is List with the resources that the pods were admitted with.
func (s *Store) Allocated() []*v1.Pod { return s.list(func(e entry) *v1.Pod { return e.pod }) }

func (s *Store) list(of func(entry) *v1.Pod) []*v1.Pod {
	all := s.all()
	out := make([]*v1.Pod, 0, len(all))
	for _, e := range all {
		pod := *of(e)
		pod.Status = e.status
		out = append(out, &pod)
	}
	slices.SortFunc(out, podspec.Compare)
	return out
}

// Active lists the specs of the pods that hold resources of the node: admitted and not at their
// end.
func (s *Store) Active() []*v1.Pod { return specs(s.all(), entry.active) }

// Holding lists Active, and the pods that have ended of which something is assigned still: the
// resources of these are not free yet.
func (s *Store) Holding(assigned func(types.UID) bool) []*v1.Pod {
	return specs(s.all(), func(e entry) bool {
		return e.active() || e.admitted && assigned(e.pod.UID)
	})
}

// Undecided lists the specs of the pods that have yet to be admitted.
func (s *Store) Undecided() []*v1.Pod {
	return specs(s.all(),
		func(e entry) bool { return !e.admitted && !status.Ended(e.status.Phase) })
}

// Specs lists the specs of all pods.
func (s *Store) Specs() []*v1.Pod { return specs(s.all(), func(entry) bool { return true }) }

func specs(entries []entry, of func(entry) bool) (out []*v1.Pod) {
	for _, e := range entries {
		if of(e) {
			out = append(out, e.pod)
		}
	}
	return out
}

func (s *Store) all() []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.entries))
}

// shown is the pod that others are told of.
func (e entry) shown() *v1.Pod { return cmp.Or(e.wanted, e.pod) }

func (e entry) active() bool { return e.admitted && !status.Ended(e.status.Phase) }
