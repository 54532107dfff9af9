package probe

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// maxAtOnce bounds the concurrent probes of one pod.
const maxAtOnce = 8

// Config holds what a prober depends on. All fields are required.
type Config struct {
	// Ask runs a probe once; handler.Handlers.Probe does so.
	Ask func(context.Context, *v1.Probe, handler.Target) (handler.Outcome, error)
	// Tell receives a container's events. Wake is called when the results of a pod's probes change.
	// Neither may block.
	Tell func(of podspec.Ref, eventType, reason, message string)
	Wake func(types.UID)
}

// Prober probes containers. All methods may be called from any goroutine.
type Prober struct {
	cfg      Config
	measures measures
	born     time.Time
	wake     chan struct{} // capacity 1: a probe is due earlier than expected

	mu       sync.Mutex // guards the fields below, and all pods and probes
	pods     map[types.UID]*pod
	schedule schedule
}

// pod holds the probes of a pod with containers that run, or ran, and have probes.
type pod struct {
	spec   *v1.Pod
	probes map[key]*probe
	series map[key]*series
	// found is never changed in place.
	found  map[string]status.Probed
	asking int      // number of running probes
	queue  []*probe // probes that wait for one of those to end
}

type key struct {
	container string
	kind      Kind
}

// state is the state of a probe; see the diagram in the package comment.
type state int

const (
	held state = iota
	scheduled
	queued
	asking
	dropped
)

// probe is a probe of a running container.
type probe struct {
	key
	pod    *pod
	spec   *v1.Probe
	target handler.Target
	state  state
	due    time.Time
	at     int // index in the schedule
	run    run
	answer status.Answer
	cancel context.CancelFunc // of the running question
}

// New returns a prober, which asks nothing until Run.
func New(cfg Config) (*Prober, error) {
	m, err := newMeasures()
	return &Prober{
		cfg: cfg, measures: m, born: time.Now(), wake: make(chan struct{}, 1),
		pods: map[types.UID]*pod{},
	}, err
}

// Probed returns the results of the pod's probes, by container id. The caller must not change it.
func (p *Prober) Probed(uid types.UID) map[string]status.Probed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one, ok := p.pods[uid]; ok {
		return one.found
	}
	return nil
}

// Follow probes the containers that run according to the pod's status. A pod that is being ended is
// probed only for readiness.
func (p *Prober) Follow(spec *v1.Pod, s v1.PodStatus, ending bool) {
	p.mu.Lock()
	changed := p.followLocked(spec, s, ending)
	p.mu.Unlock()
	if changed {
		p.cfg.Wake(spec.UID)
	}
}

// Forget drops a pod.
func (p *Prober) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(uid)
}

func (p *Prober) followLocked(spec *v1.Pod, s v1.PodStatus, ending bool) (changed bool) {
	if podspec.Ended(s.Phase) {
		p.forgetLocked(spec.UID)
		return false
	}
	want := wanted(spec, s, ending)
	one, known := p.pods[spec.UID]
	if !known {
		if len(want) == 0 {
			return false
		}
		one = &pod{probes: map[key]*probe{}, series: map[key]*series{}}
		p.pods[spec.UID] = one
	}
	one.spec = spec
	for k, was := range one.probes {
		if w, still := want[k]; !still || w.target.ID != was.target.ID {
			p.dropLocked(was)
		}
	}
	now := time.Now()
	for k, w := range want {
		p.wantLocked(one, k, w, now)
	}
	return one.tally()
}

// wantLocked adds a wanted probe, and schedules it if it may run.
func (p *Prober) wantLocked(one *pod, k key, w want, now time.Time) {
	is, known := one.probes[k]
	if !known {
		is = &probe{key: k, pod: one, spec: w.spec}
		if k.kind == Startup && w.started { // from before this agent started
			is.answer = status.Passes
		}
		one.probes[k] = is
		if one.series[k] == nil {
			one.series[k] = p.measures.of(one.spec, k)
		}
	}
	is.target = w.target // the pod's address may be known late
	if k.kind == Startup && w.started && is.answer == status.NoAnswer && is.state == scheduled {
		p.schedule.remove(is) // the earlier start of the container became known late
		is.state, is.answer = held, status.Passes
	}
	if is.state != held || !w.open || is.answer != status.NoAnswer {
		return
	}
	keeps := w.canWait && w.since.Before(p.born)
	p.scheduleLocked(is, first(w.spec, w.since, now, keeps))
}

func (p *Prober) scheduleLocked(is *probe, due time.Time) {
	is.state, is.due = scheduled, due
	p.schedule.add(is)
	if is.at == 0 {
		await.Wake(p.wake)
	}
}

// dropLocked ends a probe.
func (p *Prober) dropLocked(is *probe) {
	switch is.state {
	case scheduled:
		p.schedule.remove(is)
	case asking:
		is.cancel()
	case held, queued, dropped:
	}
	is.state = dropped
	delete(is.pod.probes, is.key)
}

func (p *Prober) forgetLocked(uid types.UID) {
	one, known := p.pods[uid]
	if !known {
		return
	}
	for _, is := range one.probes {
		p.dropLocked(is)
	}
	for k := range one.series {
		p.measures.drop(one.spec, k)
	}
	delete(p.pods, uid)
}

// tally updates the results of the pod's probes, and reports whether they changed.
func (one *pod) tally() (changed bool) {
	found := map[string]status.Probed{}
	for k, is := range one.probes {
		if is.answer == status.NoAnswer {
			continue
		}
		c := found[is.target.ID]
		switch k.kind {
		case Startup:
			c.Startup = is.answer
		case Liveness:
			c.Liveness = is.answer
		case Readiness:
			c.Readiness = is.answer
		}
		found[is.target.ID] = c
	}
	if maps.Equal(found, one.found) {
		return false
	}
	one.found = found
	return true
}
