package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/status"
)

// Kind is a kind of probe, as named in events and metrics.
type Kind string

// The kinds of probes.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// specs returns the container's probes by kind; nil if it has none of that kind.
func specs(c *v1.Container) map[Kind]*v1.Probe {
	return map[Kind]*v1.Probe{
		Startup: c.StartupProbe, Liveness: c.LivenessProbe, Readiness: c.ReadinessProbe,
	}
}

// run counts equal answers in a row.
type run struct {
	answer status.Answer
	length int32
}

// add adds an answer, and reports whether it counts: whether enough equal answers came in a row.
func (r *run) add(answer status.Answer, p *v1.Probe) bool {
	if r.answer != answer {
		*r = run{answer: answer}
	}
	enough := max(p.SuccessThreshold, 1)
	if answer == status.Fails {
		enough = max(p.FailureThreshold, 1)
	}
	r.length = min(r.length+1, enough)
	return r.length == enough
}

// final reports whether the probe is done for this run of the container after an answer that
// counts: the container has started, or is about to be stopped.
func (k Kind) final(answer status.Answer) bool {
	return k == Startup || k == Liveness && answer == status.Fails
}

// period returns the time between two questions.
func period(p *v1.Probe) time.Duration {
	return time.Duration(max(p.PeriodSeconds, 1)) * time.Second
}

// first returns when to ask a container first: after the initial delay from its start. If that has
// passed, it is now or, if keeps is set, the next time in the probe's rhythm. The start is known by
// the machine's clock, which may have been set since. The returned times follow the monotonic clock
// of now.
func first(p *v1.Probe, started, now time.Time, keeps bool) time.Time {
	since := max(now.Sub(started), 0)
	at := now.Add(time.Duration(p.InitialDelaySeconds)*time.Second - since)
	switch {
	case !at.Before(now):
		return at
	case keeps:
		return next(p, at, now)
	default:
		return now
	}
}

// next returns the next time after due in the probe's rhythm that is in the future; missed times
// are skipped.
func next(p *v1.Probe, due, now time.Time) time.Time {
	every := period(p)
	missed := max(now.Sub(due)/every, 0)
	return due.Add((missed + 1) * every)
}
