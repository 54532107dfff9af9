package pod

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// The kubelet's reasons of events about resizes.
const (
	ResizeStarted   = "ResizeStarted"
	ResizeCompleted = "ResizeCompleted"
	ResizeError     = "ResizeError"
)

// Step returns the record of a pod after an event, and the effects in order. An event that comes
// too late changes nothing.
func Step(r Record, e Event) (Record, []Effect) {
	s := step{Record: r}
	s.take(e)
	if s.facts().Cleared && !r.facts().Cleared {
		s.do(Effect{Kind: Write, Status: StatusCleared})
	}
	return s.Record, s.effects
}

// step is a record on its way to the next one.
type step struct {
	Record
	effects []Effect
}

// do adds an effect, by default on the record's pod.
func (s *step) do(e Effect) {
	if e.Pod == nil {
		e.Facts = s.facts()
	}
	s.effects = append(s.effects, e)
}

func (s *step) take(e Event) {
	switch e.Kind {
	case Desired, Deleted:
		s.desired(e)
	case Retried:
		if s.State == Rejected { // a new life, once the old one is gone
			s.restart(e.Pod)
		}
	case Removed:
		s.removed(e)
	case Reconciled:
		switch e.News {
		case EndNews:
			s.desired(e)
		case GateNews:
			s.observed(e)
		case NoNews:
		}
	case Orphaned:
		if s.State == None && e.Heard {
			s.Record = Record{State: Removing, Spec: Spec{Pod: e.Pod}, Hold: Held, OnNode: true,
				Orphan: true}
			s.do(Effect{Kind: Remove, Orphan: true})
		}
	case Killed:
		s.killed(e)
	case Ending:
		if s.State == Running {
			s.leaving(true)
		}
	case Observed:
		s.observed(e)
	case Admitted:
		s.admitted(e)
	case Waits, Refused:
		s.notAdmitted(e)
	case Resized:
		s.resized(e)
	case NotResized:
		s.notResized(e)
	case Settled:
		s.settled(e)
	case Released:
		s.released()
	case Ended:
		switch s.State {
		case Running:
			s.State = Completed
			s.release()
		case Terminating:
			s.State = Terminated
			s.release()
		default: // reported before, or the pod is being removed
		}
	case Gone:
		if s.State == Removing {
			s.OnNode = false
			s.leave()
		}
	default:
		panic(fmt.Sprintf("pod: event %q", e.Kind))
	}
}

// desired handles a pod that its source wants to run, or to end if it has a deletion timestamp.
func (s *step) desired(e Event) {
	if was := e.Runtime.Pod; s.State == None && was != nil && !Same(was, e.Pod) {
		// An earlier run of the agent knew another pod of that UID.
		s.take(Event{Kind: Orphaned, Pod: was, Heard: true})
	}
	switch {
	case s.isAnother(e.Pod), s.State == Removing, s.State == Releasing:
		s.restart(e.Pod)
	case e.ends():
		s.deleted(e)
	default:
		s.wanted(e)
	}
}

func (s *step) wanted(e Event) {
	switch s.State {
	case None, Deciding:
		if s.State == None {
			s.begin(e)
		} else {
			s.observed(e)
			s.follow(e)
		}
		if e.Why.Reason != "" {
			s.killed(e)
			return
		}
		if !e.Runtime.Ended {
			s.do(Effect{Kind: Submit, Adopt: e.Runtime.Running})
			return
		}
		// It must not run again, and may have something recorded: its worker sees to that.
		s.leaving(true)
		s.run()
	case Rejected, Completed:
		s.follow(e)
	case Running:
		s.follow(e)
		if e.Runtime.Ended { // others say so, and its worker has yet to follow
			s.leaving(true)
		}
		s.do(Effect{Kind: Run})
	case Terminating, Terminated:
		if s.Killed {
			s.follow(e)
		} else { // its source wanted it ended: it is a new pod
			s.restart(e.Pod)
		}
	default:
		s.never()
	}
}

func (s *step) deleted(e Event) {
	switch s.State {
	case None:
		s.begin(e)
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
	default:
		s.never()
	}
}

func (s *step) removed(e Event) {
	last := s.Next
	if last == nil && !s.Orphan {
		last = s.Pod
	}
	if last != nil && !Same(last, e.Pod) {
		return // another pod of that UID was desired since
	}
	if e.FromAPI { // it was deleted by force: it gets no grace period
		forced := *e.Pod
		forced.DeletionGracePeriodSeconds = ptr.To[int64](0)
		e.Pod = &forced
	}
	switch s.State {
	case None: // it was never desired here
	case Deciding, Rejected, Running, Completed, Terminating, Terminated:
		s.Spec, _ = s.accept(e)
		s.remove()
	case Removing, Releasing:
		if s.Next != nil && (s.Orphan || s.State == Releasing) {
			s.do(Effect{Kind: Forget})
		}
		if s.Next = nil; s.State == Removing && !s.Orphan {
			s.Spec, _ = s.accept(e)
			s.do(Effect{Kind: Hasten})
		}
	default:
		s.never()
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
	case Completed: // the caller that ends it waits until it is cleared
		s.Killed, s.State = true, Terminated
	case Removing: // by its own grace period, which may be long
		s.do(Effect{Kind: Hasten, Orphan: s.Orphan, Grace: e.Grace, Why: e.Why})
	case None, Rejected, Terminated, Releasing:
		// Nothing of it runs.
	default:
		s.never()
	}
}

// observed has the worker look. Of a pod that has none, the runtime may still have something from
// an earlier run of the agent.
func (s *step) observed(e Event) {
	switch s.State {
	case None, Releasing:
	case Deciding, Rejected:
		s.OnNode = s.OnNode || e.Runtime.Recorded
	default:
		s.do(Effect{Kind: Wake})
	}
}

func (s *step) admitted(e Event) {
	if s.State != Deciding {
		return
	}
	if e.Why.Reason != "" {
		s.do(Effect{Kind: Tell, Warning: true, Why: e.Why})
	}
	s.Spec = s.having(podspec.ResourcesOf(e.Pod), s.Shown())
	s.resume()
	s.run()
	if s.Resize.InProgress {
		s.do(Effect{Kind: ApplyResize})
	}
	if s.Wanted != nil {
		s.do(Effect{Kind: AskResize})
	}
}

// resume takes up a resize that an earlier run of the agent had begun: the pod's status says so, or does not
// say yet what it was allocated.
func (s *step) resume() {
	allocated := podspec.ResourcesOf(s.Pod).Containers
	for _, c := range slices.Concat(s.Pod.Status.InitContainerStatuses, s.Pod.Status.ContainerStatuses) {
		if was := c.AllocatedResources; was != nil &&
			!equality.Semantic.DeepEqual(was, allocated[c.Name].Requests) {
			s.Resize.InProgress, s.Resize.Generation = true, s.Pod.Generation
		}
	}
	for _, c := range s.Pod.Status.Conditions {
		if c.Type == v1.PodResizeInProgress && c.Status == v1.ConditionTrue {
			s.Resize.InProgress, s.Resize.Generation = true, c.ObservedGeneration
			if c.Reason == v1.PodReasonError {
				s.Resize.Error = c.Message
			}
		}
	}
}

// resized takes the resources that the pod was allocated. Of one that is being removed nobody asks any more.
func (s *step) resized(e Event) {
	switch s.State {
	case Running:
	case Completed, Terminating, Terminated:
		s.Spec = s.having(podspec.ResourcesOf(e.Pod), s.Shown())
		s.do(Effect{Kind: Write, Status: StatusKept})
		return
	default:
		return
	}
	s.Spec = s.having(podspec.ResourcesOf(e.Pod), s.Shown())
	s.Resize.InProgress, s.Resize.Error, s.Resize.Generation = true, "", e.Pod.Generation
	s.do(Effect{Kind: Write, Status: StatusKept})
	s.do(Effect{Kind: TellResize, Why: Why{Reason: ResizeStarted}})
	s.do(Effect{Kind: Run})
	s.do(Effect{Kind: ApplyResize})
}

func (s *step) notResized(e Event) {
	if s.State != Running || s.Wanted == nil || s.Resize.Pending == e.Why {
		return
	}
	said := s.Resize.Pending.Reason == e.Why.Reason && e.Why.Silent
	s.Resize.Pending = e.Why
	s.do(Effect{Kind: Write, Status: StatusKept})
	s.do(Effect{Kind: Wake})
	if !said {
		s.do(Effect{Kind: TellResize, Warning: true, Why: e.Why})
	}
}

func (s *step) settled(e Event) {
	if s.State != Running || !s.Resize.InProgress || e.Why.Message != "" && e.Why.Message == s.Resize.Error {
		return
	}
	s.Resize.InProgress, s.Resize.Error = e.Why.Message != "", e.Why.Message
	s.do(Effect{Kind: Write, Status: StatusKept})
	s.do(Effect{Kind: Wake})
	told := Effect{Kind: TellResize, Why: Why{Reason: ResizeCompleted}}
	if s.Resize.InProgress {
		told.Warning, told.Why = true, Why{Reason: ResizeError, Message: s.Resize.Error}
	}
	s.do(told)
}

// notAdmitted handles a pod that waits or was refused.
func (s *step) notAdmitted(e Event) {
	if s.State != Deciding {
		return
	}
	status := StatusWaiting
	if e.Kind == Refused {
		s.State, s.EndedUnseen, status = Rejected, true, StatusRejected
	}
	s.do(Effect{Kind: Write, Status: status, Why: e.Why})
	if !e.Why.Silent {
		s.do(Effect{Kind: Tell, Warning: e.Kind == Refused, Why: e.Why})
	}
}

func (s *step) released() {
	if s.Hold == Returning {
		s.Hold = Free
	}
	if s.State != Releasing {
		return
	}
	next, orphan := s.Next, s.Orphan
	s.Record = Record{}
	if next == nil {
		return
	}
	s.desired(Event{Kind: Desired, Pod: next})
	if s.State == Deciding && !orphan {
		s.do(Effect{Kind: Restarted})
	}
}

// begin makes the record of a desired pod that has nothing under way.
func (s *step) begin(e Event) {
	s.Record = Record{Hold: Held, OnNode: e.Runtime.Recorded, EndedUnseen: e.Runtime.Ended}
	s.Spec, _ = s.accept(e)
	s.State = Deciding
	s.do(Effect{Kind: Write, Status: StatusPending})
}

// follow takes another spec of the same pod.
func (s *step) follow(e Event) {
	var resized bool
	s.Spec, resized = s.accept(e)
	s.do(Effect{Kind: Write, Status: StatusKept})
	if resized && s.State == Running {
		s.do(Effect{Kind: AskResize})
	}
}

func (s *step) run() {
	s.State, s.OnNode, s.Admitted = Running, true, true
	s.do(Effect{Kind: Write, Status: StatusAdmitted})
	s.do(Effect{Kind: Run})
}

// restart has a pod begin once what the record is of is gone and released.
func (s *step) restart(pod *v1.Pod) {
	s.Next = pod
	switch {
	case s.State != Removing && s.State != Releasing:
		s.remove()
	case s.Orphan || s.State == Releasing: // it has no status
		s.do(pending(pod))
	}
}

func pending(pod *v1.Pod) Effect {
	return Effect{Kind: Write, Facts: Facts{Spec: Spec{Pod: pod}}, Status: StatusPending}
}

// end terminates a pod, with the effect's grace and reason. Even if the runtime knows nothing of
// the pod, an earlier run of the agent may have left a cgroup or a volume; the worker removes it.
func (s *step) end(how Effect) {
	s.State, s.OnNode = Terminating, true
	s.leaving(false)
	how.Kind = Terminate
	s.do(how)
}

// remove removes a pod from the node, if it may be there.
func (s *step) remove() {
	if !s.OnNode {
		s.leave()
		return
	}
	s.State = Removing
	s.leaving(false)
	s.do(Effect{Kind: Remove})
}

// leaving has other pods wait for what the pod holds. ended is set if it has ended by itself.
// Repeating this changes nothing.
func (s *step) leaving(ended bool) {
	if s.Hold == Held {
		s.do(Effect{Kind: Leave, Ended: ended})
	}
}

// release asks for the release of what the pod holds, once.
func (s *step) release() {
	if s.Hold == Held {
		s.Hold = Returning
		s.do(Effect{Kind: Release})
	}
}

// leave ends the life of a pod that has left nothing on the node, once all that it held is released.
func (s *step) leave() {
	s.State = Releasing
	s.release()
	if s.Next == nil {
		s.do(Effect{Kind: Forget})
	} else {
		s.do(pending(s.Next))
	}
	if s.Hold == Free {
		s.released()
	}
}
