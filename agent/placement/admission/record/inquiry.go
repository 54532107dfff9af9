package record

import (
	"time"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// LookTimeout is how long a new pod keeps its place while it is asked whether what it needs is there.
const LookTimeout = 3 * time.Second

// Inquiry says what is known of the objects that a pod needs. A pod that would get CPUs, memory or
// devices of its own gets nothing, and claims nothing, before it could start. Until the first answer it
// keeps its place in the order of arrival, as while a plugin is asked.
type Inquiry struct {
	Begun bool // Needs follows the pod's objects
	// Looked: the API server was asked. Overtaken: something is missing, and others may have gone first.
	Looked, Overtaken bool
	Lack              decide.Lack
}

// Lacking returns the record of a pod of which it is known now what it lacks. Time does not pass for it while
// the API server does not answer.
func (r Record) Lacking(l decide.Lack, now time.Time) Record {
	if r.Inquiry.Overtaken && r.Inquiry.Lack.Unknown {
		r.Tries.Since = now
	}
	r.Inquiry.Lack = l
	return r
}

// forgo ends what inquire began. No call for the pod is under way.
func (s *step) forgo() {
	if s.Inquiry.Begun {
		s.Inquiry.Begun = false
		s.do(Forgo{})
	}
}

// looks reports whether the API server is asked what the pod lacks before the decision counts: its
// claims cannot be used as far as is known, or it would get something, and may lack an object.
func (i Inquiry) looks(d decide.Decision, waited time.Duration) bool {
	if i.Looked || i.Overtaken || waited >= LookTimeout {
		return false
	}
	return d.IsForClaims() || i.Lack.Unknown && !d.Kind.HoldsNothing() && d.Outcome != decide.Reject
}

// hinder lets a pod that has or will have a place, but could not start, wait without holding anything.
// A pod without a place is rejected, whatever it lacks, unless others may have gone before it because
// it lacked something. hinder reports whether the pod was hindered.
func (s *step) hinder(d decide.Decision) bool {
	i := s.Inquiry
	if d.Kind == decide.Checked || d.Outcome == decide.Reject && !i.Overtaken || i.Lack == (decide.Lack{}) ||
		i.looks(d, s.Waited(s.Now)) {
		return false
	}
	s.Inquiry.Overtaken = true
	if d = d.Without(i.Lack, s.Wait, s.Waited(s.Now)); d.Outcome == decide.Reject {
		s.reject(d.Rejection)
	} else {
		s.waitFor(d)
	}
	return true
}

// overtaken turns a rejection into a wait for the room that others may have taken while the pod could
// not start.
func (i Inquiry) overtaken(d decide.Decision) decide.Decision {
	if i.Overtaken && d.Kind != decide.Checked && d.Outcome == decide.Reject {
		d.Kind, d.Outcome, d.Cause = decide.Overtaken, decide.Wait, decide.ForResources
		d.Reason = d.Cause.Reason()
		d.Message += "; other pods came first while it could not start"
	}
	return d
}

// inquire asks the API server. Meanwhile the pod has its place, as while a plugin is asked.
func (s *step) inquire(d decide.Decision) {
	s.Inquiry.Looked = true
	has := s.Has
	switch plan := d.Case.Plan.Pod; {
	case d.Kind == decide.Preempting || d.Kind.HoldsNothing() || s.IsReserved() && !s.Claims():
	case d.Outcome == decide.Wait: // also in place of a claim that is no longer good
		has = Reservation{Claimed, d.Claim}
	case s.Claims():
	case len(plan.Containers) > 0:
		has = Reservation{Placed, plan}
	}
	s.give(Inquiring, has)
	s.do(Inquire{s.Tries.Since.Add(LookTimeout)})
}
