package admission

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// record is all that admission knows of one pod. It is a value: step returns the next one.
type record struct {
	decide.Demand
	// runs: its sandbox is alive and its assignment, if any, was recorded under this boot. It keeps
	// what it has and is admitted whatever it lacks.
	runs bool
	// ended: it ended by itself, and others know that.
	ended bool
	state state
	// cause is the reason for which the pod waits; "": it does not wait, or nothing was said yet.
	cause string
	place
	// newer is the demand submitted since the plan was made; it counts if the plan fails. nil: none.
	newer *decide.Demand

	has         reservation
	uses        allocation.PodClaims // its resource claims, when it was decided on
	preferences decide.Preferences
	inquiry     inquiry
	question    question
	tries       tries
}

// place is a pod's place in line.
type place struct {
	after   types.UID // the pod ahead of it; "": none
	forTurn bool      // it waits for that pod's turn to end, not only for its guess
}

// question is the call of GetPreferredAllocation in progress.
type question struct {
	resource string // "": no plugin is asked
	// late: the answer takes its time.
	late bool
	// void: some of what was on offer has been taken since, so that it is asked again.
	void bool
}

// reservation holds the pod's share of the node.
type reservation struct {
	kind reservationKind
	pod  allocation.Pod
}

type reservationKind int

const (
	// assigned: the pod holds it, or will once Allocate and the commit succeed.
	assigned reservationKind = iota
	// tentative is a guess: the pod's place without the preference that is being asked for, or that
	// it stands in line for.
	tentative
	// claimed: no later pod gets it. Terminating pods may hold some of it still. Requests that are
	// only counted are claimed too.
	claimed
)

// tries holds what failed for the pod, and when it is tried again.
type tries struct {
	since time.Time // when the pod came
	due   time.Time // when the time of the state is over; zero: never, its deadline apart
	// retries counts the failures of plugins and of the store.
	retries int
	// reread says what was read again for the pod: nothing is twice.
	reread decide.Stale
	// refusal is said if the pod may wait no longer for what failed last.
	refusal *allocation.Rejection
	// unsound: the pod keeps CPUs that the machine would not give it when that was decided. So they
	// are no sign of a machine that has changed since.
	unsound bool
	// madeWay: other pods have made way for it.
	madeWay bool
	// held is when holding it back ends; zero: it was never held back.
	held time.Time
}

// goesNow reports whether the pod holds nothing any more in the kubelet's eyes.
func (r *record) goesNow() bool {
	return r.state.goesNow() || r.ended && r.state == terminating
}

// claims reports whether the pod waits with a claim, or did until now.
func (r *record) claims() bool { return r.has.kind == claimed }

// guesses reports whether plugins' answers may still change what the pod has.
func (r *record) guesses() bool { return r.has.kind == tentative }

// counts reports whether the pod's requests count against the node. A pod without a place, for which
// a plugin is asked, does not count; one that runs does from the beginning.
func (r *record) counts() bool {
	switch r.state {
	case admitted, terminating, releasing, unreleased:
		return true
	}
	return r.runs || r.claims() || r.isReserved()
}

func (r *record) isReserved() bool { return len(r.has.pod.Containers) > 0 }

// isShort reports whether the pod runs and lacks what a container that starts later needs.
func (r *record) isShort() bool {
	return r.runs && r.state == admitted && !r.has.pod.IsEmpty() && r.has.pod.Incomplete(r.Pod)
}

// hasTurn reports whether a plugin is asked about the pod, or has just answered.
func (r *record) hasTurn() bool {
	switch r.state {
	case asking, inquiring:
		return true
	case queued, rereading:
		return len(r.preferences.Advice) > 0 && r.has.kind != assigned
	case finishing, canceling:
		return r.has.kind != assigned
	}
	return false
}

// holds reports whether the pod, which has the turn, has it for the resource. While a plugin takes its
// time, it has no turn for resources that it was not asked about yet.
func (r *record) holds(resource string) bool {
	if r.state != asking || !r.question.late || r.question.resource == resource {
		return true
	}
	for key := range r.preferences.Advice {
		if key.Resource == resource {
			return true
		}
	}
	return false
}

// isPrompt reports whether the pod does not hold up those in line behind it, as far as is known.
func (r *record) isPrompt() bool {
	return r.state == queued || r.state == asking && !r.question.late || r.state == behind && r.cause == ""
}

// undecided reports whether the pod is asked about or stands in line.
func (r *record) undecided() bool { return r.hasTurn() || r.state == behind }

// unanswered lists the resources whose plugins have not answered Allocate yet.
func (r *record) unanswered() []string {
	resources := sets.New[string]()
	for _, c := range r.has.pod.Containers {
		for _, d := range c.Devices() {
			if d.Answer == nil {
				resources.Insert(d.Resource)
			}
		}
	}
	return sets.List(resources)
}

// accounted returns the pod's entry in the ledger; stored is what is recorded of it.
func (r *record) accounted(stored allocation.Pod) (out allocation.Entry) {
	switch {
	case r.state.goes():
		out.Standing = allocation.Terminating
	case r.claims():
		out.Standing = allocation.Claimed
	}
	if r.counts() {
		out.Requests, out.Shares, out.Ports, out.Rank = r.Requests, r.Shares, r.Ports, r.Rank
	}
	out.Name, out.Assigned = podspec.Name(r.Pod).String(), allocation.TakenBy(r.has.pod, stored)
	return out
}

// waited returns for how long the pod has waited; it may wait as long as Config says.
func (r *record) waited(now time.Time) time.Duration { return now.Sub(r.tries.since) }

// isEndless reports whether the pod waits, and no deadline ends that.
func (r *record) isEndless() bool {
	return (r.state == deferred || r.state == retrying) && r.tries.refusal == nil
}

// drivers returns the drivers of the pod's claims, by name.
func (r *record) drivers() (names []string) {
	for _, c := range r.has.pod.Containers {
		for _, one := range c.Claims() {
			for _, d := range one.Devices {
				names = append(names, d.Driver)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// yields returns the devices of the pod's guess that were chosen for another pod and not for this one;
// nil: none.
func (r *record) yields(chosen allocation.DeviceIDs) (out allocation.DeviceIDs) {
	if !r.guesses() || len(chosen) == 0 {
		return nil
	}
	mine, has := r.Choices(), allocation.TakenBy(r.has.pod).Devices()
	for name, ids := range chosen {
		if both := ids.Intersection(has[name]).Difference(mine[name]); both.Len() > 0 {
			if out == nil {
				out = allocation.DeviceIDs{}
			}
			out[name] = both
		}
	}
	return out
}
