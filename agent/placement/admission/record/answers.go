package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/await"
)

// answered acts on what a goroutine brings back. Of a pod that terminates or was released only the
// assignment still matters.
func (s *step) answered(e Event) {
	switch s.State {
	case Canceling:
		s.drop()
		return
	case Finishing:
		if done, ok := e.(Allocated); ok {
			s.move(Terminating, Reservation{Pod: done.Pod})
			s.sayAdmit()
			return
		}
		if done, ok := e.(Resized); ok {
			s.move(Terminating, s.Has)
			resizing{s}.recorded(done)
			resizing{s}.settle()
			return
		}
		s.empty(Withdrawn)
		return
	}
	switch e := e.(type) {
	case Resized:
		s.move(Admitted, s.Has)
		resizing{s}.recorded(e)
	case Advised:
		if !s.Question.Void || e.Err != nil {
			s.Preferences = s.Preferences.Answered(e.Key, e.IDs, e.Err)
		}
		s.Question = Question{}
		if decide.MayPass(e.Err) {
			s.do(Silence{e.Key, e.Err})
		}
		s.move(Queued, s.Has)
	case Looked:
		s.move(Queued, s.Has)
	case Allocated:
		s.move(Admitted, Reservation{Pod: e.Pod})
		s.sayAdmit()
		s.Preferences, s.newer = decide.Preferences{}, nil
	case Failed:
		newer := s.newer
		s.newer = nil
		if s.failed(e); newer != nil {
			s.resubmitted(Resubmitted{Demand: *newer, Planned: *newer})
		}
	case Dropped:
		if e.Err == nil {
			s.drop()
			return
		}
		s.move(Unreleased, s.Has)
		s.Tries.Due = s.Now.Add(time.Second)
		s.do(Free{}) // some wait for this release alone
	default:
		panic(fmt.Sprintf("admission: event %T in state %d", e, s.State))
	}
}

// failed acts on an error of a plugin or of the store. A pod that runs is admitted without a plan.
// An error that may pass has the call tried again until the pod's deadline, with the answers that
// did come.
func (s *step) failed(f Failed) {
	recording := errors.Is(f.Err, ErrCommit)
	_, unprepared := errors.AsType[*PrepareError](f.Err)
	refusal := allocation.Unexpected(f.Err)
	switch {
	case s.Runs:
		s.empty(Queued)
		s.do(Adopt{f.Err})
		return
	case unprepared && s.Wait <= 0:
		refusal = nil // as the kubelet, it tries without end
	case !recording && !unprepared && !decide.MayPass(f.Err), s.Waited(s.Now) >= s.Wait:
		s.Tries.Refused = true
		s.reject(refusal)
		return
	case errors.Is(f.Err, claim.ErrReplaced),
		!s.Tries.InvalidCPUs && !s.View.Sound(s.Pod, f.Pod): // the machine changed meanwhile
		s.give(Queued, Reservation{Kind: Claimed})
		return
	}
	s.move(Retrying, Reservation{Pod: f.Pod})
	s.Tries.Refusal = refusal
	pauses := await.Pauses{First: time.Second, Last: 10 * time.Second}
	s.Tries.Due = f.Began.Add(pauses.After(s.Tries.Retries))
	if s.Tries.Due.Before(s.Now) {
		s.Tries.Due = s.Now // the call itself took longer than the pause
	}
	s.Tries.Retries++
	message := f.Err.Error()
	if call, ok := errors.AsType[*CallError](f.Err); ok {
		message = fmt.Sprintf("the device plugin of %s failed: %v", call.Resource, call.Err)
	}
	say := Say{Outcome: decide.Wait, Message: message, Ignored: s.Preferences.Ignored}
	switch s.Cause = decide.ForPlugin; {
	case recording:
		s.Cause = decide.ForStore
	case unprepared:
		s.Cause, say.Lack = decide.ForDriver, decide.Lack{Reason: reasonUnprepared, Why: message}
	}
	say.Reason = s.Cause.Reason()
	s.do(say)
}

// reasonUnprepared is the kubelet's reason of the event about a claim that a driver did not prepare.
const reasonUnprepared = "FailedPrepareDynamicResources"
