package record

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Resize holds what a pod asks for since it was admitted, and how far that is.
type Resize struct {
	// Wanted is its demand as its source has it; nil: it has what it wants.
	Wanted *decide.Demand
	// Since is when it asked for that.
	Since time.Time
	// Due: it is to be decided on. After a failure it is due again at Retry; zero: nothing failed.
	Due   bool
	Retry time.Time
	// Promised: what it waits for is kept from pods that came later.
	Promised bool
	// Preempted: other pods make way for it, and nothing is said until they are gone.
	Preempted bool
	// asked: the source has asked since it was decided on last.
	asked bool
	// recording is the demand that a commit under way records as allocated, by the decision granted; nil: no
	// commit is.
	recording *decide.Demand
	granted   decide.Resizing
}

// IsDue reports whether the resize is to be decided on.
func (z *Resize) IsDue(now time.Time) bool {
	return z.Due || !z.Retry.IsZero() && !now.Before(z.Retry)
}

// Over reports whether what the resize waits for may not be kept any longer from pods that came later.
func (z *Resize) Over(now time.Time, wait time.Duration) bool { return now.Sub(z.Since) >= wait }

// Resizes reports whether the pod was admitted and asks for something else.
func (r *Record) Resizes() bool { return r.State == Admitted && r.Resize.Wanted != nil }

// Grows returns by how much the requests grow that the pod waits for.
func (r *Record) Grows() v1.ResourceList {
	return decide.Growth(r.Requests, r.Resize.Wanted.Requests)
}

// CompareResizes orders resizes as the kubelet does: those that need no room, then by priority, by QoS
// class and by age.
func CompareResizes(a, b *Record) int {
	grows := func(r *Record) int { return min(len(r.Grows()), 1) }
	shared := func(r *Record) int {
		if podspec.QOSClass(r.Resize.Wanted.Pod) == v1.PodQOSGuaranteed {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(grows(a), grows(b)), cmp.Compare(b.Rank.Priority, a.Rank.Priority),
		cmp.Compare(shared(a), shared(b)), a.Resize.Since.Compare(b.Resize.Since))
}

// counted returns what counts of these requests against the node: while a resize is being recorded, the greater
// amounts.
func (z *Resize) counted(requests v1.ResourceList) v1.ResourceList {
	if z.recording == nil {
		return requests
	}
	return decide.Greater(requests, z.recording.Requests)
}

// sameResources reports whether two versions of a pod ask for the same.
func sameResources(a, b *v1.Pod) bool { return podspec.ResourcesOf(a).In(b) == b }

// resizing is a step of the pod's resize.
type resizing struct{ *step }

// asked takes what the pod asks for now.
func (s resizing) asked(wanted decide.Demand) {
	before := s.Resize.Wanted
	switch {
	case s.Resize.recording == nil && sameResources(s.Pod, wanted.Pod):
		s.settle()
	case before != nil && sameResources(before.Pod, wanted.Pod):
		s.Resize.Wanted = &wanted
	default:
		s.Resize.Wanted, s.Resize.Since, s.Resize.Due, s.Resize.asked = &wanted, s.Now, true, true
		s.Resize.Retry, s.Resize.Preempted = time.Time{}, false
		s.promise(false)
	}
}

// settle ends a resize.
func (s resizing) settle() {
	s.promise(false)
	s.Resize = Resize{}
}

// promise begins or ends keeping from others what a resize waits for.
func (s resizing) promise(it bool) {
	if s.Resize.Promised && !it {
		s.do(Free{Resized: true})
	}
	s.Resize.Promised = it
}

// sized acts on the decision on a resize.
func (s resizing) sized(d decide.Resizing) {
	if s.Resize.asked {
		d.Trigger = decide.PodUpdated
	}
	s.Resize.Due, s.Resize.Retry, s.Resize.asked = false, time.Time{}, false
	wanted := s.Resize.Wanted
	if d.Reason != "" {
		s.promise(d.Expected && !s.Resize.Over(s.Now, s.Wait))
		if s.Resize.Preempted = d.Expected && (s.Resize.Preempted || len(d.Victims) > 0); len(d.Victims) > 0 {
			s.do(Preempt{decide.Decision{Pod: wanted.Pod, Victims: d.Victims,
				Rejection: &allocation.Rejection{Reason: d.Lack, Message: d.Message, Short: d.Short}}})
		}
		if !s.Resize.Preempted {
			s.do(SayResize{Pod: wanted.Pod, Resizing: d})
		}
		return
	}
	s.Resize.recording, s.Resize.granted = wanted, d
	s.Resize.Promised, s.Resize.Preempted = false, false // the ledger has it now
	has := s.Has
	if d.Held != nil {
		has.Pod = *d.Held // beside what is recorded, until that is this
	}
	s.move(Resizing, has)
	s.do(RecordResources{podspec.ResourcesOf(wanted.Pod), d.Held})
}

// recorded takes what was recorded as allocated. What was asked for meanwhile is decided on next.
func (s resizing) recorded(e Resized) {
	to, granted := s.Resize.recording, s.Resize.granted
	s.Resize.recording, s.Resize.granted = nil, decide.Resizing{}
	if s.Has.Pod.Containers = e.Pod.Containers; e.Err == nil {
		shrinks := len(decide.Growth(to.Requests, s.Requests)) > 0
		s.Demand, s.Has.Pod.Resources = *to, e.Pod.Resources
		if s.do(SayResize{Pod: to.Pod, Resizing: granted}); shrinks {
			s.do(Free{Resized: true})
		}
	}
	switch {
	case sameResources(s.Pod, s.Resize.Wanted.Pod):
		s.settle()
	case e.Err != nil:
		s.Resize.Retry = s.Now.Add(time.Second)
		s.do(SayResize{Pod: s.Resize.Wanted.Pod,
			Resizing: decide.Deferred("what the pod is allocated cannot be recorded: " + e.Err.Error())})
	default:
		s.Resize.Due = true
	}
}
