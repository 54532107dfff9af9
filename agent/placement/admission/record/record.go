package record

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Record is all that admission knows of one pod. It is a value: Step returns the next one.
type Record struct {
	decide.Demand
	// Runs: its sandbox is alive and its assignment, if any, was recorded under this boot. It keeps
	// what it has and is admitted whatever it lacks.
	Runs bool
	// ended: it ended by itself, and others know that.
	ended bool
	State State
	Cause decide.Cause // for which it waits
	Place
	// newer is the demand submitted since the plan was made; it counts if the plan fails. nil: none.
	newer *decide.Demand

	Has         Reservation
	Uses        allocation.PodClaims // its resource claims, when it was decided on
	Preferences decide.Preferences
	Inquiry     Inquiry
	Question    Question
	Tries       Tries
	Resize      Resize
}

// Place is a pod's place in line.
type Place struct {
	After   types.UID // the pod ahead of it; "": none
	ForSlot bool      // it waits for that pod's slot, and not for whether it could start
}

// Question is the call of GetPreferredAllocation in progress.
type Question struct {
	Resource string    // "": no plugin is asked
	Asked    time.Time // when it was
	// Slow: the answer takes longer than Patience. Later pods are decided on meanwhile.
	Slow bool
	// Late: it takes longer than SlowAnswer.
	Late bool
	// Void: some of what was on offer has been taken since, so that it is asked again.
	Void bool
}

// Reservation holds the pod's share of the node.
type Reservation struct {
	Kind ReservationKind
	Pod  allocation.Pod
}

// ReservationKind says whose the reserved share is.
type ReservationKind int

const (
	// Assigned: the pod holds it, or will once Allocate and the commit succeed.
	Assigned ReservationKind = iota
	// Placed: the pod has a place, and may have another one by what its plugin prefers or the API server
	// says. No other pod gets it meanwhile.
	Placed
	// Claimed: no later pod gets it. Terminating pods may hold some of it still. Requests that are
	// only counted are claimed too.
	Claimed
)

// Tries holds what failed for the pod, and when it is tried again.
type Tries struct {
	Since time.Time // when the pod came
	Due   time.Time // when the time of the state is over; zero: never, its deadline apart
	// Retries counts the failures of plugins and of the store.
	Retries int
	// Reread says what was read again for the pod: nothing is twice.
	Reread decide.Stale
	// Refusal is said if the pod may wait no longer for what failed last.
	Refusal *allocation.Rejection
	// Refused: the pod had a place, and a plugin or the store refused it. Another place is no better.
	Refused bool
	// InvalidCPUs: the pod keeps CPUs that the machine would not give it when that was decided. So they
	// are no sign of a machine that has changed since.
	InvalidCPUs bool
	// HasPreempted: other pods were preempted for it.
	HasPreempted bool
	// held is when holding it back ends; zero: it was never held back.
	held time.Time
}

// GoesNow reports whether the pod holds nothing any more in the kubelet's eyes.
func (r *Record) GoesNow() bool {
	return r.State.GoesNow() || r.ended && r.State == Terminating
}

// Claims reports whether the pod waits with a claim, or did until now.
func (r *Record) Claims() bool { return r.Has.Kind == Claimed }

// MayGiveWay reports whether the pod's place may be free soon: the API server has yet to say whether the pod
// could start, or it leaves.
func (r *Record) MayGiveWay() bool {
	switch r.State {
	case Inquiring, Finishing, Canceling:
		return r.Has.Kind == Placed
	}
	return false
}

// StopsLine reports whether the pods behind it are decided on later: a plugin that is asked about it has
// Patience to answer.
func (r *Record) StopsLine() bool { return r.State == Asking && !r.Question.Slow }

// Counts reports whether the pod's requests count against the node. A pod without a place, for which
// a plugin is asked, does not count; one that runs does from the beginning.
func (r *Record) Counts() bool {
	switch r.State {
	case Admitted, Resizing, Terminating, Releasing, Unreleased:
		return true
	}
	return r.Runs || r.Resize.recording != nil || r.Claims() || r.IsReserved()
}

// IsReserved reports whether the pod has a share of the node, of whatever kind.
func (r *Record) IsReserved() bool { return len(r.Has.Pod.Containers) > 0 }

// IsShort reports whether the pod runs and lacks what a container that starts later needs.
func (r *Record) IsShort() bool {
	return r.Runs && r.State == Admitted && !r.Has.Pod.IsEmpty() && r.Has.Pod.Incomplete(r.Pod)
}

// HoldsSlot reports whether a plugin is asked about the pod, or has just answered: a resource has one
// slot, and no other pod's preference is asked for meanwhile.
func (r *Record) HoldsSlot() bool {
	switch r.State {
	case Asking, Inquiring:
		return true
	case Queued, Rereading:
		return len(r.Preferences.Advice) > 0 && r.Has.Kind != Assigned
	case Finishing, Canceling:
		return r.Has.Kind != Assigned
	}
	return false
}

// Holds reports whether the pod, which holds a slot, holds the resource's. While a plugin takes its
// time, the pod holds no slot of resources whose plugins have yet to be asked about it.
func (r *Record) Holds(resource string) bool {
	if r.State != Asking || !r.Question.Slow || r.Question.Resource == resource {
		return true
	}
	for key := range r.Preferences.Advice {
		if key.Resource == resource {
			return true
		}
	}
	return false
}

// IsPrompt reports whether the pod does not hold up those in line behind it, as far as is known.
func (r *Record) IsPrompt() bool {
	return r.State == Queued || r.State == Asking && !r.Question.Late || r.State == Behind && r.Cause == decide.Nothing
}

// Undecided reports whether the pod is asked about or stands in line.
func (r *Record) Undecided() bool { return r.HoldsSlot() || r.State == Behind }

// Unanswered lists the resources whose plugins have not answered Allocate yet.
func (r *Record) Unanswered() []string {
	resources := sets.New[string]()
	for _, c := range r.Has.Pod.Containers {
		for _, d := range c.Devices() {
			if d.Answer == nil {
				resources.Insert(d.Resource)
			}
		}
	}
	return sets.List(resources)
}

// Accounted returns the pod's entry in the ledger; stored is what is recorded of it.
func (r *Record) Accounted(stored allocation.Pod) (out allocation.Entry) {
	switch {
	case r.State.Goes() && !r.Counts() && stored.IsEmpty(): // it has nothing that others could wait for
	case r.State.Goes():
		out.Hold = allocation.Terminating
	case r.Claims():
		out.Hold = allocation.Claimed
	}
	if r.Counts() {
		out.Requests, out.Shares, out.Ports, out.Rank = r.Resize.counted(r.Requests), r.Shares, r.Ports, r.Rank
	}
	out.Name, out.Assigned = podspec.Name(r.Pod).String(), allocation.HoldingsOf(r.Has.Pod, stored)
	return out
}

// Waited returns for how long the pod has waited; it may wait as long as Conditions say.
func (r *Record) Waited(now time.Time) time.Duration { return now.Sub(r.Tries.Since) }

// IsEndless reports whether the pod waits, and no deadline ends that.
func (r *Record) IsEndless() bool {
	return (r.State == Deferred || r.State == Retrying) && r.Tries.Refusal == nil
}

// Drivers returns the drivers of the pod's claims, by name.
func (r *Record) Drivers() (names []string) {
	for _, c := range r.Has.Pod.Containers {
		for _, one := range c.Claims() {
			for _, d := range one.Devices {
				names = append(names, d.Driver)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
