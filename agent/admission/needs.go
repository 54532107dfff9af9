package admission

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/claims/claim"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/topology/podspec"
)

// Reasons of pods that cannot start for want of objects of the API server: of one that waits, and of
// one whose time is over.
const (
	ReasonWaitObjects = "WaitingForObjects"
	ReasonNoObjects   = "ObjectsMissing"
)

// lookTimeout is how long a new pod keeps its place while it is asked whether what it needs is there.
const lookTimeout = 3 * time.Second

// Needs knows which objects of the API server pods need to start. Only Look blocks.
type Needs interface {
	// Begin starts to follow what the pod needs, until End. When Lack's answer changes, the queue must
	// be poked.
	Begin(pod *v1.Pod)
	// Lack returns what the pod lacks, as far as known.
	Lack(pod *v1.Pod) Lack
	// Look returns when all is known, or when the API server does not answer.
	Look(ctx context.Context, pod *v1.Pod)
	// End is called when none of the others is under way for the pod.
	End(pod types.UID)
}

// Lack says in the kubelet's words why a pod could not start; the zero Lack: it could.
type Lack struct {
	// Unknown: the API server has not answered yet; the object may be there.
	Unknown bool
	Why     string
	// Reason is the reason of the kubelet's event, Container the container that it is about; "": the pod.
	Reason, Container string
	// Usual: nothing is wrong so far, so the kubelet has no event of it.
	Usual bool
	// Limit says that the node takes no more volumes of a driver, which is why the pod is rejected when
	// its time is over; "": it is for another reason.
	Limit string
}

// Missing reports whether it is known that the pod could not start.
func (l Lack) Missing() bool { return l != Lack{} && !l.Unknown }

// inquiry says what is known of the objects that a pod needs. A pod that would get CPUs, memory or
// devices of its own gets nothing, and claims nothing, before it could start. Until the first answer it
// keeps its place in the order of arrival, as while a plugin is asked.
type inquiry struct {
	begun bool // Needs follows the pod's objects
	// looked: the API server was asked. aside: something is missing, and others may have gone first.
	looked, aside bool
	lack          Lack
}

// inquire begins to follow what a new pod needs. A pod that runs or was admitted before needs no
// question. If pods do not wait, they hold what they get while they cannot start, as under a kubelet.
func (a *admitter) inquire(r *record, recorded bool) {
	if a.cfg.Needs == nil || a.cfg.Wait <= 0 || r.runs || recorded || podspec.IsStatic(r.Pod) {
		return
	}
	h := a.cfg.Hardware()
	if (allocation.View{CPUs: h.CPUs, Memory: h.Memory}).Needs(r.Pod) {
		r.inquiry.begun = true
		a.cfg.Needs.Begin(r.Pod)
	}
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
	return isForClaims(d) || i.lack.Unknown && !d.Kind.HoldsNothing() && d.Outcome != decide.Reject
}

// isEndless reports whether the pod waits, and no deadline ends that.
func (r *record) isEndless() bool {
	return (r.state == deferred || r.state == retrying) && r.tries.refusal == nil
}

// hinder lets a pod that has or will have a place, but could not start, wait without holding anything.
// A pod without a place is rejected, whatever it lacks, unless others may have gone before it because
// it lacked something. hinder reports whether the pod was hindered.
func (s *step) hinder(d decide.Decision) bool {
	i := s.inquiry
	if d.Kind == decide.Checked || d.Outcome == decide.Reject && !i.aside || i.lack == (Lack{}) ||
		i.looks(d, s.waited(s.now)) {
		return false
	}
	s.inquiry.aside = true
	if d = lacking(d, i.lack, s.wait, s.waited(s.now)); d.Outcome == decide.Reject {
		s.reject(d.Rejection)
	} else {
		s.waitFor(d)
	}
	return true
}

// lacking turns a decision into a wait without holding anything, or into a rejection when the pod's
// time is over. An object that may exist rejects nobody.
func lacking(d decide.Decision, l Lack, wait, waited time.Duration) decide.Decision {
	const nothing = "; until then the pod is given no CPUs, memory or devices"
	d.Kind, d.Claim, d.Victims, d.Rejection = decide.Hindered, allocation.Pod{}, nil, nil
	d.Outcome, d.Reason, d.Message = decide.Wait, ReasonWaitObjects, l.Why+nothing
	if l.Unknown {
		d.Message = l.Why + "; it is not known whether the pod could start" + nothing
		return d
	}
	d.Rejection = &allocation.Rejection{Reason: ReasonNoObjects,
		Message: fmt.Sprintf("%s; the pod has waited for that for %v", l.Why, wait)}
	if l.Limit != "" {
		d.Rejection = &allocation.Rejection{Reason: status.ReasonVolumeLimit, Message: l.Limit}
	}
	if waited >= wait {
		d.Outcome, d.Reason, d.Message = decide.Reject, d.Rejection.Reason, d.Rejection.Message
	}
	return d
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

// needed waits until it is known what a pod needs.
func (c *calls) needed(ctx context.Context, pod *v1.Pod, until time.Time) event {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if c.cfg.Needs != nil {
		c.cfg.Needs.Look(ctx, pod)
	}
	if claim.Any(pod) {
		c.cfg.Claims.Look(ctx, pod)
	}
	return looked{}
}
