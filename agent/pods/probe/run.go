package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// maxTries bounds how often a question is tried that could not be asked.
const maxTries = 3

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	due := time.After(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due:
		case <-p.wake:
		}
		due = await.At(p.begin(time.Now(), func(is *probe) {
			ctx, cancel := context.WithCancel(ctx)
			is.cancel = cancel
			asked := question{is.spec, is.target}
			under.Go(func() {
				defer cancel()
				p.ask(ctx, is, asked)
			})
		}))
	}
}

// begin starts the probes that are due, and returns when the next one is; zero: none.
func (p *Prober) begin(now time.Time, ask func(*probe)) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		is, then := p.schedule.take(now)
		switch {
		case is == nil:
			return then
		case is.pod.asking == maxAtOnce:
			is.state = queued
			is.pod.queue = append(is.pod.queue, is)
		default:
			is.state = asking
			is.pod.asking++
			ask(is)
		}
	}
}

// question is a copy of what a container is asked, since the probe may change meanwhile.
type question struct {
	spec   *v1.Probe
	target handler.Target
}

// ask asks the question and handles the answer.
func (p *Prober) ask(ctx context.Context, is *probe, q question) {
	begun := time.Now()
	o, err := p.answerOf(ctx, q)
	for try := 1; err != nil && try < maxTries && ctx.Err() == nil; try++ {
		o, err = p.answerOf(ctx, q)
	}
	pod, counts, changed := p.answered(is, reply{
		result: o.Result, err: err, took: time.Since(begun), void: ctx.Err() != nil,
	})
	if !counts {
		return
	}
	of := podspec.Ref{Pod: pod, Container: is.container}
	switch {
	case err != nil:
		p.warn(of, "Unhealthy", "%s probe errored and resulted in unknown state: %s", is.kind, err)
	case o.Result == handler.Failure:
		p.warn(of, "Unhealthy", "%s probe failed: %s", is.kind, o.Output)
	case o.Result == handler.Warning:
		p.warn(of, "ProbeWarning", "%s probe warning: %s", is.kind, o.Output)
	}
	if changed {
		p.cfg.Wake(pod.UID)
	}
}

func (p *Prober) warn(of podspec.Ref, reason, format string, args ...any) {
	p.cfg.Tell(of, v1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}

// answerOf asks once, for at most the probe's timeout. The runtime enforces that of a command.
func (p *Prober) answerOf(ctx context.Context, q question) (handler.Outcome, error) {
	if q.spec.Exec == nil {
		limit := time.Duration(max(q.spec.TimeoutSeconds, 1)) * time.Second
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return p.cfg.Ask(ctx, q.spec, q.target)
}

// reply is the result of a question.
type reply struct {
	result handler.Result
	err    error
	took   time.Duration
	void   bool // the question was cancelled
}

// answered handles a reply. counts reports whether the container that gave it still runs, changed
// whether the results have changed.
func (p *Prober) answered(is *probe, r reply) (spec *v1.Pod, counts, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, now := is.pod, time.Now()
	one.asking--
	p.dequeueLocked(one, now)
	if is.state == dropped || r.void {
		return one.spec, false, false
	}
	is.state = held
	if r.err == nil {
		changed = is.count(r) && one.tally()
	}
	if is.answer == status.NoAnswer || !is.kind.final(is.answer) {
		p.scheduleLocked(is, next(is.spec, is.due, now))
	}
	return one.spec, true, changed
}

// dequeueLocked schedules the pod's next waiting probe.
func (p *Prober) dequeueLocked(one *pod, now time.Time) {
	for len(one.queue) > 0 {
		is := one.queue[0]
		one.queue = one.queue[1:]
		if is.state == queued {
			p.scheduleLocked(is, now)
			await.Wake(p.wake)
			return
		}
	}
}

// count counts an answer, and reports whether enough equal ones came in a row.
func (is *probe) count(r reply) bool {
	answer, series := status.Passes, is.pod.series[is.key]
	if r.result == handler.Failure {
		answer = status.Fails
		series.failed.Inc()
	} else {
		series.passed.Inc()
		series.took.Observe(r.took.Seconds())
	}
	if !is.run.add(answer, is.spec) {
		return false
	}
	is.answer = answer
	return true
}
