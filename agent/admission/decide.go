package admission

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/topology/podspec"
)

// ReasonAdopted is that of an Admit of a pod that runs already and lacks some of what it requests.
const ReasonAdopted = "AdoptedWithoutResources"

// Decision is what becomes of a pod: Admit with a plan, Wait or Reject. An Admit whose plan has an
// Ask is not final: a plugin's preference is to be asked for, and what the plan has is what the pod
// has meanwhile.
type Decision struct {
	Pod             *v1.Pod
	Outcome         Outcome
	Reason, Message string
	// Case is the plan and what it was made from.
	Case explain.Case
	// Held is what a pod that is admitted would hold.
	Held allocation.Pod
	// Victims are the pods that make way for a critical one, which waits for their end.
	Victims []types.UID
	// Unasked are the resources whose plugins have a preference that was not asked for.
	Unasked []string

	kind decisionKind
	// claim is what a pod that waits is going to get as things are. It may lack devices that no
	// plugin has named yet.
	claim allocation.Pod
	// rejection is what the kubelet would say of a pod that has no place now.
	rejection *allocation.Rejection
	// ignored are preferences that are not followed, and why.
	ignored []string
}

// decisionKind is how a decision was come to.
type decisionKind int

const (
	planned decisionKind = iota
	// adopted: what runs is let run with its own, whatever a plan for it came to.
	adopted
	// unplanned: as adopted, and no plan was made.
	unplanned
	// checked: a handler does not let the pod pass.
	checked
	// soon: the pod has a place once the releases that are being recorded are.
	soon
	// preempting: the pod is critical and has a place once others have gone, however long that takes.
	preempting
)

// decide is the decision on a pod as things are. It is pure. A pod that runs is admitted. Another
// one is if all handlers pass it and it has a place now; if it has none, it waits for one that it
// will have, if the snapshot is patient, and a critical one for one that others make for it.
func decide(s *Snapshot, r *request) Decision {
	d := Decision{Pod: r.pod, Outcome: Admit}
	room := s.now(r)
	d.Case = explain.Case{Room: room, Pod: r.pod}
	if r.runs && (!r.own.IsEmpty() && !r.own.Incomplete(r.pod) || !s.assigns(r.pod)) {
		return s.adopt(d, r, nil, unplanned)
	}
	if !r.runs {
		if refusal := s.refused(r); refusal != nil {
			return d.stopped(refusal.orShort(room, r.pod), s.patient)
		}
	}
	d.plan(room, r)
	switch err := d.Case.Err; {
	case err == nil:
		d.Held = d.Case.Plan.Pod
	case r.runs:
		return s.adopt(d, r, err, adopted)
	default:
		d.rejection = rejection(room, r.pod, err)
		d.refuse(Reject, d.rejection.Reason, d.rejection.Message)
		if s.patient {
			d.foresee(rooms{room, s.later(r)}, r)
		}
		if d.Outcome == Reject && podspec.IsCritical(r.pod) {
			d.preempt(s, r)
		}
	}
	return d
}

// assigns reports whether the pod asks for anything that is assigned, not only counted.
func (s *Snapshot) assigns(pod *v1.Pod) bool {
	return allocation.View{CPUs: s.hardware.CPUs, Memory: s.hardware.Memory}.Needs(pod)
}

func (d *Decision) refuse(outcome Outcome, reason, message string) {
	d.Outcome, d.Reason, d.Message = outcome, reason, message
}

func (d Decision) stopped(by *Refusal, patient bool) Decision {
	d.kind = checked
	d.rejection = &allocation.Rejection{Reason: by.Reason, Message: by.Message}
	d.refuse(Reject, by.Reason, by.Message)
	if by.Wait && patient {
		d.Outcome = Wait
	}
	return d
}

// plan looks for a place in the room.
func (d *Decision) plan(room allocation.Room, r *request) {
	advice := r.advice
	plan, err := room.Plan(r.pod, advice)
	for err == nil && plan.Ask != nil && r.silent.Has(plan.Ask.AskKey.Resource) {
		advice = preferences{advice: advice}.with(plan.Ask.AskKey, nil).advice
		plan, err = room.Plan(r.pod, advice)
	}
	if len(advice) > 0 && err != nil {
		if without, none := unadvised(room, r.pod); none == nil {
			plan, err = without, nil
			d.ignored = append(d.ignored, "with what plugins prefer the pod has no place")
		}
	}
	if err != nil && r.claimed && r.own.IsEmpty() {
		// What it has a claim to may be free as a whole.
		whole := room
		whole.Own, whole.Keep = r.claim, allocation.KeepWhole
		if claimed, none := whole.Plan(r.pod, advice); none == nil {
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

// adopt admits a pod that runs already, with what is recorded of it: whatever has become of
// policies, the machine or the record, what runs is let run. err is why it gets no more; nil: there
// was no need to look for more.
func (s *Snapshot) adopt(d Decision, r *request, err error, kind decisionKind) Decision {
	d.kind, d.Held = kind, r.own
	if err == nil {
		d.Case.Plan = allocation.Plan{Pod: r.own}
	}
	d.refuse(Admit, "", "")
	view := allocation.View{CPUs: s.hardware.CPUs, Memory: s.hardware.Memory, Own: r.own}
	lacks := view.Lacks(r.pod)
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
