package decide

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
)

// ReasonAdopted is the reason of an Admit of a running pod that lacks some of its requests.
const ReasonAdopted = "AdoptedWithoutResources"

// Decision says what becomes of a pod: Admit with a plan, Wait or Reject. An Admit whose plan has an
// Ask is not final: the plugin is asked for its preference first, and the pod holds the plan
// meanwhile.
type Decision struct {
	Pod             *v1.Pod
	Outcome         Outcome
	Reason, Message string
	Cause           Cause // of a Wait
	// Case is the plan and what it was made from.
	Case explain.Case
	// Held lists what the pod holds once it is admitted.
	Held allocation.Pod
	// Victims are the pods that make way for a critical one, which waits for their end.
	Victims []types.UID
	Advice

	// Kind says how the decision was made.
	Kind Kind
	// Claim lists what a waiting pod will get as things are now, without the devices that no
	// plugin has named yet.
	Claim allocation.Pod
	// Rejection holds the kubelet's words for a pod that has no place now.
	Rejection *allocation.Rejection
	stale     Stale // of the handler's refusal
}

// Advice says what became of plugins' preferences.
type Advice struct {
	// Unasked are the resources whose plugins have a preference that was not asked for.
	Unasked []string
	// Ignored lists preferences that are not followed, and why.
	Ignored []string
}

// Kind says how a decision was made.
type Kind int

const (
	// Planned: the pod has a plan, or the lack of one decides.
	Planned Kind = iota
	// Adopted: the pod runs and keeps its own, whether or not a plan was found.
	Adopted
	// Unplanned: as Adopted, without a plan.
	Unplanned
	// Checked: a handler refuses the pod.
	Checked
	// Hindered: the pod lacks an object of the API server and could not start.
	Hindered
	// Unclaimed: the pod's resource claims cannot be used yet, and it waits without end.
	Unclaimed
	// Overtaken: other pods took the room while it could not start.
	Overtaken
	// PendingRelease: the pod has a place once the releases under way are recorded.
	PendingRelease
	// Preempting: the pod is critical and has a place once its victims have gone, however long
	// that takes.
	Preempting
)

// HoldsNothing reports whether a pod that waits for this has nothing of the node meanwhile.
func (k Kind) HoldsNothing() bool {
	return k == Checked || k == Hindered || k == Unclaimed || k == Overtaken
}

// Decide decides on a pod; it is pure. It admits a pod that runs, and one that passes all handlers
// and has a place now. If the snapshot is patient, a pod without a place waits for one that it will
// have. A critical pod waits for the end of the pods that make way for it.
func (s *Snapshot) Decide(r *Request) Decision {
	d := Decision{Pod: r.Pod, Outcome: Admit}
	room := s.Now(r)
	d.Case = explain.Case{Room: room, Pod: r.Pod}
	if r.Runs && (!r.Own.IsEmpty() && !r.Own.Incomplete(r.Pod) || !s.assigns(r.Pod)) {
		return s.adopt(d, r, nil, Unplanned)
	}
	if !r.Runs {
		if refusal := s.refused(r); refusal != nil {
			return d.stopped(refusal.orShort(room, r), s.Patient)
		}
	}
	d.plan(room, r)
	switch err := d.Case.Err; {
	case err == nil:
		d.Held = d.Case.Plan.Pod
	case r.Runs:
		return s.adopt(d, r, err, Adopted)
	default:
		d.Rejection = rejection(room, r.Pod, err)
		d.refuse(Reject, d.Rejection.Reason, d.Rejection.Message)
		switch unready, ok := errors.AsType[*allocation.Unready](err); {
		case s.Patient:
			d.predict(rooms{room, s.Later(r)}, r)
		case ok && s.Endless && unready.Claim.Reason != "":
			d.Kind, d.Rejection = Unclaimed, nil
			d.wait(causeOf(unready.Claim), unready.Error())
		}
		if d.Outcome == Reject && r.Rank.Critical {
			d.preempt(s, r)
		}
	}
	return d
}

// assigns reports whether the pod asks for anything that is assigned, not only counted.
func (s *Snapshot) assigns(pod *v1.Pod) bool {
	return allocation.View{CPUs: s.Hardware.CPUs, Memory: s.Hardware.Memory,
		Inventory: s.Inventory, Advertised: s.Advertised}.Needs(pod)
}

func (d *Decision) refuse(outcome Outcome, reason, message string) {
	d.Outcome, d.Reason, d.Message, d.Cause = outcome, reason, message, Nothing
}

func (d *Decision) wait(c Cause, message string) {
	d.refuse(Wait, c.Reason(), message)
	d.Cause = c
}

func (d Decision) stopped(by *Refusal, patient bool) Decision {
	d.Kind, d.stale = Checked, by.Stale
	d.Rejection = &allocation.Rejection{Reason: by.Reason, Message: by.Message, Short: by.Short}
	d.refuse(Reject, by.Reason, by.Message)
	if by.Wait && patient {
		d.Outcome, d.Cause = Wait, ForHandler
	}
	return d
}

// plan looks for a place in the room. It plans without the plugins' preferences if these leave none,
// and with the pod's claim as a whole if nothing else is left.
func (d *Decision) plan(room allocation.Room, r *Request) {
	advice := r.Advice
	plan, err := room.Plan(r.Pod, advice)
	for err == nil && plan.Ask != nil && r.Silent.Has(plan.Ask.AskKey.Resource) {
		advice = Preferences{Advice: advice}.With(plan.Ask.AskKey, nil).Advice
		plan, err = room.Plan(r.Pod, advice)
	}
	if len(advice) > 0 && err != nil {
		if without, none := unadvised(room, r.Pod); none == nil {
			plan, err = without, nil
			d.Ignored = append(d.Ignored, "with what plugins prefer the pod has no place")
		}
	}
	if err != nil && r.Claimed && r.Own.IsEmpty() {
		// The pod's claim may be free as a whole.
		whole := room
		whole.Own, whole.Keep = r.Claim, allocation.KeepWhole
		if claimed, none := whole.Plan(r.Pod, advice); none == nil {
			plan, err = claimed, nil
		}
	}
	d.Case.Plan, d.Case.Err = plan, err
}

// unadvised plans as if no plugin had answered: what is preferred for one container may leave no
// place for the next.
func unadvised(room allocation.Room, pod *v1.Pod) (allocation.Plan, error) {
	none := allocation.Advice{}
	plan, err := room.Plan(pod, none)
	for err == nil && plan.Ask != nil {
		none[plan.Ask.AskKey] = nil
		plan, err = room.Plan(pod, none)
	}
	return plan, err
}

// Adopt admits a pod that runs with what is recorded of it and no plan: err says why there is none.
func (s *Snapshot) Adopt(r *Request, err error) Decision {
	return s.adopt(Decision{Pod: r.Pod}, r, err, Adopted)
}

// adopt admits a pod that runs with what is recorded of it, whatever has become of policies, the
// machine or the record. err says why it gets no more; nil: no more was planned.
func (s *Snapshot) adopt(d Decision, r *Request, err error, kind Kind) Decision {
	d.Kind, d.Held = kind, r.Own
	if err == nil {
		d.Case.Plan = allocation.Plan{Pod: r.Own}
	}
	d.refuse(Admit, "", "")
	view := allocation.View{CPUs: s.Hardware.CPUs, Memory: s.Hardware.Memory, Own: r.Own,
		Inventory: s.Inventory, Advertised: s.advertisedFor(r)}
	lacks := view.Lacks(r.Pod)
	if len(lacks) == 0 && err == nil {
		return d
	}
	d.Reason = ReasonAdopted
	d.Message = "the pod was running before and runs on with what is recorded as its own"
	if len(lacks) > 0 {
		d.Message += "; it lacks " + strings.Join(lacks, ", ")
	}
	if err != nil {
		d.Message += "; no more is to be had: " + err.Error()
	}
	d.Message += "; to have it placed anew, delete and create it again"
	return d
}
