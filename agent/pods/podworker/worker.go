package podworker

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// errNoEffect is the error of an action that succeeded and is still to be done.
var errNoEffect = errors.New("the runtime reported success but nothing changed")

// worker is the worker of one pod.
type worker struct {
	uid   types.UID
	queue queue
	// arrival is its place in the order in which workers were added.
	arrival int
	wake    chan struct{} // capacity 1

	memory  *memory // the goroutine's own, as is the next; nil before the first round
	history history
	served  time.Time // the goroutine's own: when it last had a place to start

	// Workers.mu guards the fields below.
	desired Desired
	version int  // counts changes of desired
	running bool // has a goroutine
	retry   bool // what failed for want of an object may be tried again
	telling bool // its containers are not stopped before others know that it is not ready
	// cancel ends the current action; nil: there is none.
	cancel context.CancelFunc
}

// history keeps what matters of a worker's earlier observations.
type history struct {
	blind  int  // looks in a row at which the pod could not be observed
	ending bool // the pod was on its way to its end, or there
	// recall holds what was done since the pod was observed, if that is certain; readAt is the time of
	// that observation.
	recall *Done
	readAt time.Time
}

func (p *worker) wakeUp() { await.Wake(p.wake) }

func (p *worker) updateLocked(d Desired) {
	was := p.desired.Stop
	if d.Stop == nil && was != nil {
		return
	}
	p.version++
	defer p.wakeUp()
	if d.Stop == nil || was == nil && !d.Stop.Orphan {
		p.desired.Pod = d.Pod // an orphan's has less than the one that is known
	}
	if d.Stop == nil {
		return
	}
	p.desired.Stop = d.Stop.merge(was)
	if p.cancel != nil && d.Stop.sooner(was) {
		p.cancel()
	}
}

// merge adds an earlier stop, if any: the shorter grace, the first reason, and Remove if either has
// it.
func (s Stop) merge(was *Stop) *Stop {
	if was == nil {
		return &s
	}
	if !s.sooner(was) {
		s.Grace, s.Orphan = was.Grace, was.Orphan
	}
	s.Remove = s.Remove || was.Remove
	if was.Reason != "" {
		s.Reason, s.Message, s.OwnLimit = was.Reason, was.Message, was.OwnLimit
	}
	return &s
}

func (s Stop) sooner(was *Stop) bool {
	return was == nil || s.grace() < was.grace()
}

// grace returns the time that the containers have from when the stop was requested.
func (s Stop) grace() time.Duration {
	if s.Orphan {
		return minGrace
	}
	return max(s.Grace, minGrace)
}

// look is the input of one round from outside the worker.
type look struct {
	Desired
	version  int
	behind   types.UID
	observed cri.Pod
	probed   map[string]status.Probed
	retry    bool
}

func (w *Workers) look(p *worker) look {
	w.mu.Lock()
	defer w.mu.Unlock()
	retry := p.retry
	p.retry = false
	return look{Desired: p.desired, version: p.version, behind: w.behindLocked(p), retry: retry}
}

// work is the goroutine of a worker.
func (w *Workers) work(ctx context.Context, p *worker) {
	for ctx.Err() == nil {
		select {
		case <-p.wake: // the look that follows answers it
		default:
		}
		if done := w.round(ctx, p); done {
			return
		}
	}
}

// round observes the pod once, does what is to be done, and waits if nothing is. It reports whether
// the pod is gone.
func (w *Workers) round(ctx context.Context, p *worker) bool {
	l, begun := w.look(p), time.Now()
	if p.memory == nil {
		p.memory = newMemory(w.cfg.hooksPending(l.Pod))
	}
	var err error
	if l.observed, err = w.observe(ctx, p, l); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Cannot observe pod, trying again", "err", err)
			w.cfg.Report(Report{Pod: l.Pod, Stop: l.Stop, Err: err, Begun: begun})
		}
		p.sleep(ctx, time.Now().Add(jitter(w.cfg.lookAgain(p.history.blind))))
		p.history.blind++
		return false
	}
	p.history.blind = 0
	if w.cfg.Probed != nil {
		l.probed = w.cfg.Probed(p.uid)
	}
	d := w.cfg.decide(l, p.memory)
	p.memory.completed = p.memory.completed || d.State == Finished && l.Stop == nil
	report := Report{
		Pod: l.Pod, Stop: l.Stop, Observed: l.observed, Probed: l.probed, Decision: d,
		Begun: begun,
	}
	w.cfg.Report(report)
	p.history.ending = d.State != SyncPod
	if d.Action == nil {
		p.history.recall = &Done{}
	}
	mayAct := w.limiters.mayAct(p, l.Pod, d.Action)
	w.noteAwaitsPublished(p, !d.TellBy.IsZero() && d.Action == nil)
	switch {
	case d.State == Finished && l.remove():
		w.remove(p)
		w.cfg.Gone(p.uid)
		return true
	case d.State == Finished:
		w.leaveQueue(p)
		p.sleep(ctx, time.Time{})
	case d.Action != nil && !mayAct:
		p.sleep(ctx, time.Now().Add(jitter(w.cfg.Sync)))
	case d.Action != nil:
		w.act(ctx, p, l.version, report)
	case !d.TellBy.IsZero() && w.cfg.IsPublished(p.uid): // there was nothing to tell
	case d.Wake.IsZero():
		p.sleep(ctx, time.Now().Add(jitter(w.cfg.Sync)))
	default:
		p.sleep(ctx, d.Wake)
	}
	return false
}

// noteAwaitsPublished notes whether Published concerns the pod.
func (w *Workers) noteAwaitsPublished(p *worker, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.telling = is
}

func (c Config) hooksPending(pod *v1.Pod) map[string]uint32 {
	if c.HooksPending == nil {
		return nil
	}
	return c.HooksPending(pod)
}

// observe returns the pod. If nothing was done since, it takes what others have just read, and if
// something was made, it reads only that. A pod that ends is changed only by its worker, so it is read
// once after the last step, not at each; until then the worker believes what it did, since a runtime
// may answer before its lists agree.
func (w *Workers) observe(ctx context.Context, p *worker, l look) (pod cri.Pod, err error) {
	done, known := p.history.recall, false
	p.history.recall = nil
	ends := l.Stop != nil || p.history.ending && done != nil && done.Kind != None
	if done != nil && !p.memory.end.removed && (ends || done.Kind == None || done.Made != cri.Made{}) {
		pod, known = w.cfg.Actuator.Recall(ctx, p.uid, *done)
		known = known && (ends || done.Kind != None || pod.ReadAt.After(p.history.readAt))
	}
	if !known {
		pod, err = w.cfg.Actuator.Observe(ctx, p.uid)
	}
	p.history.readAt = pod.ReadAt
	return pod, err
}

// decide is step, with what the memory learns before it, and a guard against a runtime that reports
// success and does nothing.
func (c Config) decide(l look, m *memory) Decision {
	m.learnAttempts(l.Pod, l.observed, c.Attempt)
	m.learn(l.Desired, l.observed, c.BackOff)
	if l.retry {
		m.retryObjects()
	}
	in := input{Desired: l.Desired, behind: l.behind, observed: l.observed, probed: l.probed,
		now: time.Now(), memory: m, backOff: c.BackOff, retention: c.Keep}
	if c.Due != nil {
		in.due = c.Due(l.Pod, in.now)
	}
	if c.Failed != nil {
		in.failed = c.Failed(l.Pod.UID)
	}
	if c.Had != nil {
		in.had = c.Had(l.Pod.UID)
	}
	if c.Holds != nil {
		in.holds = c.Holds(l.Pod.UID)
	}
	if c.Lost != nil && l.Stop == nil && alive(l.observed) {
		in.lost = c.Lost(l.Pod)
	}
	if c.IsPublished != nil {
		in.tells, in.published = true, c.IsPublished(l.Pod.UID)
	}
	d := step(in)
	if d.Action != nil && m.done.same(*d.Action) {
		m.failed(*d.Action, errNoEffect, c.retryAt())
		d = step(in)
	}
	m.deadline, m.tellBy = d.Deadline, d.TellBy
	return d
}

// act does the action of a report, unless the desired state has changed since that version.
func (w *Workers) act(ctx context.Context, p *worker, version int, r Report) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !w.begin(p, version, cancel) {
		return
	}
	a := *r.Decision.Action
	defer w.end(p)
	log := klog.FromContext(ctx)
	log.V(2).Info("Acting", "action", a.String(), "why", a.Message)
	p.memory.started(a)
	began := time.Now()
	traced, end := w.cfg.trace(ctx, r)
	made, err := w.do(traced, p, r)
	end(err)
	switch {
	case err == nil:
		now := time.Now()
		p.memory.succeeded(a, now)
		p.history.recall = &Done{a, made}
		if a.Kind == CreateSandbox {
			w.limiters.starts.took(now.Sub(began), now)
		}
	case ctx.Err() != nil:
		log.V(2).Info("Interrupted", "action", a.String(), "err", err)
	default:
		log.Info("Action did not succeed, trying again", "action", a.String(), "err", err)
		p.memory.failed(a, err, w.cfg.retryAt())
	}
}

func (c Config) trace(ctx context.Context, r Report) (context.Context, func(error)) {
	if c.Trace == nil {
		return ctx, func(error) {}
	}
	return c.Trace(ctx, r)
}

// do has the actuator do the action of a report. While that takes, changes of probes' results are
// reported.
func (w *Workers) do(ctx context.Context, p *worker, r Report) (made cri.Made, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		yield := func() { w.limiters.leave(p, nil) }
		made, err = w.cfg.Actuator.Do(ctx, r.Pod, r.Observed, *r.Decision.Action, yield)
	}()
	for {
		select {
		case <-done:
			return made, err
		case <-p.wake: // the pod is looked at when this is done; until then only probes are reported
			if w.cfg.Probed == nil {
				continue
			}
			if probed := w.cfg.Probed(p.uid); !maps.Equal(probed, r.Probed) {
				r.Probed = probed
				w.cfg.Report(r)
			}
		}
	}
}

func (w *Workers) begin(p *worker, version int, cancel context.CancelFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.version != version {
		return false
	}
	p.cancel = cancel
	return true
}

func (w *Workers) end(p *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.cancel = nil
}

func (c Config) retryAt() time.Time { return time.Now().Add(jitter(c.Retry)) }

// lookAgain returns the time to the next look at a pod after so many failures: a runtime that
// restarts is back soon, and one that is broken is asked less often.
func (c Config) lookAgain(failed int) time.Duration {
	return await.Pauses{First: time.Second, Last: c.Retry}.After(failed)
}

// sleep waits until t (zero: for ever), a wake-up, or the end of ctx.
func (p *worker) sleep(ctx context.Context, t time.Time) {
	select {
	case <-ctx.Done():
	case <-await.At(t):
	case <-p.wake:
	}
}

// jitter lengthens d by up to a half.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/2+1) }
