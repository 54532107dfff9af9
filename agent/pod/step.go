package pod

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Step is the next record of a pod after an event, and what is to be done, in order. An event that
// comes too late changes nothing.
func Step(r Record, e Event) (Record, []Effect) {
	s := step{Record: r}
	s.take(e)
	if s.cleared() && !r.cleared() {
		s.do(Effect{Kind: Clear})
	}
	return s.Record, s.effects
}

// take does what follows from an event.
func (s *step) take(e Event) {
	switch e.Kind {
	case Desired:
		s.desired(e)
	case Deleted:
		s.deleted(e)
	case Retried:
		if s.State == Rejected { // a new life, once what is known of the old one is gone
			s.Next = e.Pod
			s.remove()
		}
	case Removed:
		s.removed(e)
	case Orphaned:
		if s.State == None {
			s.Record = Record{State: Removing, Pod: e.Pod, Hold: Held, OnNode: true, Orphan: true}
			s.do(Effect{Kind: Remove, Orphan: true})
		}
	case Killed:
		s.killed(e)
	case Ending:
		if s.State == Running {
			s.ending()
		}
	case Observed:
		s.observed(e)
	case Admitted:
		s.admitted(e)
	case Waits, Refused:
		s.notAdmitted(e)
	case Released:
		s.released()
	case Ended:
		s.ended()
	case Gone:
		if s.State == Removing {
			s.OnNode = false
			s.leave()
		}
	default:
		panic(fmt.Sprintf("pod: event %q", e.Kind))
	}
}

// cleared reports whether the pod has ended for good, and neither the node nor admission has
// anything of it but records.
func (r Record) cleared() bool { return r.State == Terminated && r.Hold == Free }

// step is a record on its way to the next one.
type step struct {
	Record
	effects []Effect
}

// do adds an effect on the record's pod.
func (s *step) do(e Effect) {
	if e.Pod == nil {
		e.Pod = s.Pod
		if e.Kind == Write || e.Kind == Infeasible {
			e.Wanted = s.Wanted
		}
	}
	s.effects = append(s.effects, e)
}

func (s *step) desired(e Event) {
	if e.Pod.DeletionTimestamp != nil {
		s.deleted(e)
		return
	}
	if s.isAnother(e.Pod) {
		s.replaced(e.Pod)
		return
	}
	switch s.State {
	case None:
		s.begin(e)
	case Deciding:
		s.observed(e)
		s.follow(e)
		s.submit(e.Runtime)
	case Rejected, Completed:
		s.follow(e)
	case Running:
		s.follow(e)
		if e.Runtime.Ended { // by somebody else's word, which its worker has yet to follow
			s.ending()
		}
		s.do(Effect{Kind: Run})
	case Terminating, Terminated:
		s.desiredAtItsEnd(e)
	case Removing, Releasing:
		s.again(e.Pod)
	default:
		s.never()
	}
}

// isAnother reports whether the record is of another pod that happens to have the same UID.
func (r Record) isAnother(pod *v1.Pod) bool { return r.State != None && !Same(r.Pod, pod) }

// replaced: another pod of that UID is desired in place of the record's, which ends first.
func (s *step) replaced(by *v1.Pod) {
	if s.State == Removing || s.State == Releasing {
		s.again(by)
		return
	}
	s.Next = by
	s.remove()
}

// again keeps a pod for which a source has spoken before it was gone.
func (s *step) again(pod *v1.Pod) {
	s.Next = pod
	if s.Orphan || s.State == Releasing { // it is not listed
		s.do(Effect{Kind: Write, Pod: pod, Status: StatusPending})
	}
}

// begin makes the record of a pod that is desired and of which nothing is under way.
func (s *step) begin(e Event) {
	s.Record = Record{State: Deciding, Hold: Held, OnNode: e.Runtime.Recorded}
	resized := s.accept(e)
	s.do(Effect{Kind: Write, Status: StatusPending})
	s.infeasible(resized)
	s.submit(e.Runtime)
}

// submit asks admission for the pod. One that has ended, under an earlier run of the agent or by
// somebody else's word, shall not run again: its worker sees to that, and what may be recorded as
// its own is released then.
func (s *step) submit(runtime Runtime) {
	if runtime.Ended {
		s.ending()
		s.run()
		return
	}
	s.do(Effect{Kind: Submit, Adopt: runtime.Running})
}

func (s *step) run() {
	s.State, s.OnNode = Running, true
	s.do(Effect{Kind: Write, Status: StatusAdmitted})
	s.do(Effect{Kind: Run})
}

// follow takes another spec of the same pod.
func (s *step) follow(e Event) {
	resized := s.accept(e)
	s.do(Effect{Kind: Write, Status: StatusKept})
	s.infeasible(resized)
}

// desiredAtItsEnd: a pod that its source wanted ended and wants to run again is a new one; a pod
// that the node killed stays ended.
func (s *step) desiredAtItsEnd(e Event) {
	if s.Killed {
		s.follow(e)
		return
	}
	s.Next = e.Pod
	s.remove()
}

func (s *step) deleted(e Event) {
	if s.isAnother(e.Pod) {
		s.replaced(e.Pod)
		return
	}
	switch s.State {
	case None:
		s.Record = Record{Hold: Held, OnNode: e.Runtime.Recorded}
		s.accept(e)
		s.do(Effect{Kind: Write, Status: StatusPending})
		s.end(Effect{})
	case Deciding, Rejected, Running:
		s.follow(e)
		s.end(Effect{})
	case Completed:
		s.follow(e)
		s.State = Terminated
		s.release()
	case Terminating:
		s.follow(e)
		s.do(Effect{Kind: Terminate})
	case Terminated:
		s.follow(e)
	case Removing, Releasing:
		s.again(e.Pod)
	default:
		s.never()
	}
}

// end terminates a pod as the effect says. Also of one of which the runtime has nothing an earlier
// run of the agent may have left a cgroup or a volume: its worker sees to that.
func (s *step) end(how Effect) {
	s.State, s.OnNode = Terminating, true
	s.leaving()
	how.Kind = Terminate
	s.do(how)
}

func (s *step) removed(e Event) {
	last := s.Next
	if last == nil && !s.Orphan {
		last = s.Pod
	}
	if last != nil && !Same(last, e.Pod) {
		return // another pod of that UID was desired since
	}
	switch s.State {
	case None: // it was never desired here
	case Deciding, Rejected, Running, Completed, Terminating, Terminated:
		s.accept(e)
		s.remove()
	case Removing:
		s.withdrawn()
		if !s.Orphan {
			s.accept(e)
			s.do(Effect{Kind: Hasten})
		}
	case Releasing:
		s.withdrawn()
	default:
		s.never()
	}
}

// withdrawn: the pod that was desired again is not any more.
func (s *step) withdrawn() {
	if s.Next != nil && (s.Orphan || s.State == Releasing) {
		s.do(Effect{Kind: Forget})
	}
	s.Next = nil
}

// remove takes a pod from the node, if it may be there.
func (s *step) remove() {
	if !s.OnNode {
		s.leave()
		return
	}
	s.State = Removing
	s.leaving()
	s.do(Effect{Kind: Remove})
}

// leaving has others wait for what the pod holds. Said again it changes nothing.
func (s *step) leaving() { s.goes(false) }

// ending is leaving for a pod that has come to its end by itself.
func (s *step) ending() { s.goes(true) }

func (s *step) goes(ended bool) {
	if s.Hold == Held {
		s.do(Effect{Kind: Leave, Ended: ended})
	}
}

func (s *step) killed(e Event) {
	switch s.State {
	case Deciding, Running:
		s.Killed = true
		s.end(Effect{Grace: e.Grace, Why: e.Why})
	case Terminating:
		s.Killed = true
		s.do(Effect{Kind: Terminate, Grace: e.Grace, Why: e.Why})
	case None, Rejected, Completed, Terminated, Removing, Releasing:
		// Nothing of it runs, or nothing will in a moment.
	default:
		s.never()
	}
}

// observed: of a pod that was not admitted here the runtime may have something all the same, from
// an earlier run of the agent.
func (s *step) observed(e Event) {
	switch s.State {
	case Deciding, Rejected:
		s.OnNode = s.OnNode || e.Runtime.Recorded
	default: // its worker looks at it
	}
}

func (s *step) admitted(e Event) {
	if s.State != Deciding {
		return
	}
	if e.Why.Reason != "" {
		s.do(Effect{Kind: Tell, Warning: true, Why: e.Why})
	}
	resized := s.keep(e.Pod)
	s.run()
	s.infeasible(resized)
}

// notAdmitted takes that a pod waits or was refused.
func (s *step) notAdmitted(e Event) {
	if s.State != Deciding {
		return
	}
	status := StatusWaiting
	if e.Kind == Refused {
		s.State, status = Rejected, StatusRejected
	}
	s.do(Effect{Kind: Write, Status: status, Why: e.Why})
	if !e.Why.Silent {
		s.do(Effect{Kind: Tell, Warning: e.Kind == Refused, Why: e.Why})
	}
}

func (s *step) ended() {
	switch s.State {
	case Running:
		s.State = Completed
		s.release()
	case Terminating:
		s.State = Terminated
		s.release()
	default: // it was said before, or the pod is being removed
	}
}

// release asks for what the pod holds, once.
func (s *step) release() {
	if s.Hold == Held {
		s.Hold = Returning
		s.do(Effect{Kind: Release})
	}
}

// leave ends the life of a pod of which nothing is on the node, once all that it held is given
// back.
func (s *step) leave() {
	s.State = Releasing
	s.release()
	if s.Next == nil {
		s.do(Effect{Kind: Forget})
	} else {
		s.do(Effect{Kind: Write, Pod: s.Next, Status: StatusPending})
	}
	if s.Hold == Free {
		s.left()
	}
}

func (s *step) released() {
	if s.Hold == Returning {
		s.Hold = Free
	}
	if s.State == Releasing {
		s.left()
	}
}

// left forgets the pod, or begins with it anew.
func (s *step) left() {
	next := s.Next
	s.Record = Record{}
	if next != nil {
		s.desired(Event{Pod: next})
	}
}

// never is called in a state that is none.
func (r Record) never() { panic(fmt.Sprintf("pod: state %q", r.State)) }
