package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/status"
)

// Kind is a kind of probe, as events and metrics name it.
type Kind string

// The kinds.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// specs are the container's probes by kind; nil: it has none of that kind.
func specs(c *v1.Container) map[Kind]*v1.Probe {
	return map[Kind]*v1.Probe{
		Startup: c.StartupProbe, Liveness: c.LivenessProbe, Readiness: c.ReadinessProbe,
	}
}

// run is how often in a row a container gave the same answer.
type run struct {
	answer status.Answer
	length int32
}

// add takes one more answer, and reports whether it counts: there were enough like it in a row.
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

// final reports whether an answer that counts is the last one asked for of a run of a container: it
// has started, or is about to be stopped.
func (k Kind) final(answer status.Answer) bool {
	return k == Startup || k == Liveness && answer == status.Fails
}

// period is the time from one asking to the next.
func period(p *v1.Probe) time.Duration {
	return time.Duration(max(p.PeriodSeconds, 1)) * time.Second
}

// first is when a container that started at a time is asked first: after the initial delay. One
// for which that is over is asked now, or if it keeps its times, at the next of them. When it started
// is known by the machine's clock, which may have been set since and may be set again; the times
// from here on are as steady as now is.
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

// next is when the container is asked again that was due at a time: times that have passed since
// are left out.
func next(p *v1.Probe, due, now time.Time) time.Time {
	every := period(p)
	missed := max(now.Sub(due)/every, 0)
	return due.Add((missed + 1) * every)
}
