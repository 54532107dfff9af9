package admission

import (
	"time"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
)

// lookTimeout is how long a new pod keeps its place while it is asked whether what it needs is there.
const lookTimeout = 3 * time.Second

// inquiry says what is known of the objects that a pod needs. A pod that would get CPUs, memory or
// devices of its own gets nothing, and claims nothing, before it could start. Until the first answer it
// keeps its place in the order of arrival, as while a plugin is asked.
type inquiry struct {
	begun bool // Needs follows the pod's objects
	// looked: the API server was asked. aside: something is missing, and others may have gone first.
	looked, aside bool
	lack          decide.Lack
}

// forgo ends what inquire began. No call for the pod is under way.
func (s *step) forgo() {
	if s.inquiry.begun {
		s.inquiry.begun = false
		s.do(forgo{})
	}
}

// looks reports whether the API server is asked what the pod lacks before the decision counts: its
// claims cannot be used as far as is known, or it would get something, and may lack an object.
func (i inquiry) looks(d decide.Decision, waited time.Duration) bool {
	if i.looked || i.aside || waited >= lookTimeout {
		return false
	}
	return d.IsForClaims() || i.lack.Unknown && !d.Kind.HoldsNothing() && d.Outcome != decide.Reject
}

// hinder lets a pod that has or will have a place, but could not start, wait without holding anything.
// A pod without a place is rejected, whatever it lacks, unless others may have gone before it because
// it lacked something. hinder reports whether the pod was hindered.
func (s *step) hinder(d decide.Decision) bool {
	i := s.inquiry
	if d.Kind == decide.Checked || d.Outcome == decide.Reject && !i.aside || i.lack == (decide.Lack{}) ||
		i.looks(d, s.waited(s.now)) {
		return false
	}
	s.inquiry.aside = true
	if d = d.Without(i.lack, s.wait, s.waited(s.now)); d.Outcome == decide.Reject {
		s.reject(d.Rejection)
	} else {
		s.waitFor(d)
	}
	return true
}

// overtaken turns a rejection into a wait for the room that others may have taken while the pod could
// not start.
func (i inquiry) overtaken(d decide.Decision) decide.Decision {
	if i.aside && d.Kind != decide.Checked && d.Outcome == decide.Reject {
		d.Kind, d.Outcome, d.Reason = decide.Overtaken, decide.Wait, decide.ReasonWaitResources
		d.Message += "; other pods came first while it could not start"
	}
	return d
}

// inquire asks the API server. Meanwhile the pod has what it would get as a guess, as while a plugin
// is asked.
func (s *step) inquire(d decide.Decision) {
	s.inquiry.looked = true
	has := s.has
	switch plan := d.Case.Plan.Pod; {
	case d.Kind == decide.Preempting || d.Kind.HoldsNothing() || s.isReserved() && !s.claims():
	case d.Outcome == decide.Wait: // also in place of a claim that is no longer good
		has = reservation{claimed, d.Claim}
	case s.claims():
	case len(plan.Containers) > 0:
		has = reservation{tentative, plan}
		s.do(outguess{allocation.TakenBy(plan)})
	}
	s.give(inquiring, has)
	s.do(inquire{s.tries.since.Add(lookTimeout)})
}
