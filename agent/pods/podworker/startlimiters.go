package podworker

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// startLimiters have pods wait for a place before they start for the first time, or again.
type startLimiters struct{ starts, restarts *startLimiter }

// mayAct reports whether the pod may do the action now. A pod that is about to start waits for a
// place, and is woken then.
func (t startLimiters) mayAct(p *worker, pod *v1.Pod, a *Action) bool {
	now, limiter := time.Now(), t.of(p, a)
	t.leave(p, limiter)
	if limiter == nil {
		return true
	}
	if !limiter.enter(p, pod, now) {
		return false
	}
	p.served = now
	return true
}

// leave returns the pod's places, except one in kept.
func (t startLimiters) leave(p *worker, kept *startLimiter) {
	for _, limiter := range []*startLimiter{t.starts, t.restarts} {
		if limiter != kept {
			limiter.leave(p, time.Now())
		}
	}
}

// of returns the limiter that must let the pod do the action; nil: none.
func (t startLimiters) of(p *worker, a *Action) *startLimiter {
	switch {
	case a == nil || a.Kind != CreateSandbox && a.Kind != StartContainer:
		return nil // it has started, or does not
	case a.Kind == CreateSandbox && p.served.IsZero() || t.starts.has(p):
		return t.starts
	default:
		return t.restarts
	}
}
