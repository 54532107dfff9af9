package admission

import (
	"errors"
	"fmt"
	"time"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/claims/claim"
	"github.com/numalet/numalet/internal/await"
)

// answered acts on what a goroutine brings back. Of a pod that terminates or was released only the
// assignment still matters.
func (s *step) answered(e event) {
	switch s.state {
	case canceling:
		s.drop()
		return
	case finishing:
		if done, ok := e.(allocated); ok {
			s.move(terminating, reservation{pod: done.pod})
			s.say(decide.Admit, "", "")
			return
		}
		s.empty(withdrawn)
		return
	}
	switch e := e.(type) {
	case advised:
		if !s.question.void || e.err != nil {
			s.preferences = s.preferences.Answered(e.key, e.ids, e.err)
		}
		s.question = question{}
		if decide.MayPass(e.err) {
			s.do(unhear{e.key, e.err})
		}
		s.move(queued, s.has)
	case looked:
		s.move(queued, s.has)
	case allocated:
		s.move(admitted, reservation{pod: e.pod})
		s.say(decide.Admit, "", "")
		s.preferences, s.newer = decide.Preferences{}, nil
	case failed:
		newer := s.newer
		s.newer = nil
		if s.failed(e); newer != nil {
			s.resubmitted(resubmitted{demand: *newer, planned: *newer})
		}
	case dropped:
		if e.err == nil {
			s.drop()
			return
		}
		s.move(unreleased, s.has)
		s.tries.due = s.now.Add(time.Second)
		s.do(free{}) // some wait for this release alone
	default:
		panic(fmt.Sprintf("admission: event %T in state %d", e, s.state))
	}
}

// failed acts on an error of a plugin or of the store. A pod that runs is admitted without a plan.
// An error that may pass has the call tried again until the pod's deadline, with the answers that
// did come.
func (s *step) failed(f failed) {
	recording := errors.Is(f.err, errCommit)
	_, unprepared := errors.AsType[*prepareError](f.err)
	refusal := allocation.Unexpected(f.err)
	switch {
	case s.runs:
		s.empty(queued)
		s.do(adopt{f.err})
		return
	case unprepared && s.wait <= 0:
		refusal = nil // as the kubelet, it tries without end
	case !recording && !unprepared && !decide.MayPass(f.err), s.waited(s.now) >= s.wait:
		s.reject(refusal)
		return
	case errors.Is(f.err, claim.ErrReplaced),
		!s.tries.unsound && !s.view.Sound(s.Pod, f.pod): // the machine changed meanwhile
		s.give(queued, reservation{kind: claimed})
		return
	}
	s.move(retrying, reservation{pod: f.pod})
	s.tries.refusal = refusal
	pauses := await.Pauses{First: time.Second, Last: 10 * time.Second}
	s.tries.due = f.began.Add(pauses.After(s.tries.retries))
	if s.tries.due.Before(s.now) {
		s.tries.due = s.now // the call itself took longer than the pause
	}
	s.tries.retries++
	reason, message := decide.ReasonWaitPlugin, f.err.Error()
	switch {
	case recording:
		reason = decide.ReasonWaitStore
	case unprepared:
		reason = claim.ReasonWaitDriver
	}
	if call, ok := errors.AsType[*callError](f.err); ok {
		message = fmt.Sprintf("the device plugin of %s failed: %v", call.resource, call.err)
	}
	s.cause = reason
	s.do(say{outcome: decide.Wait, reason: reason, message: message, ignored: s.preferences.Ignored,
		unprepared: unprepared})
}
