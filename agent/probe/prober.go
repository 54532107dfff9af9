package probe

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/handler"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/topology/await"
	"github.com/numalet/numalet/topology/podspec"
)

// maxAtOnce is how many probes of one pod are under way at most.
const maxAtOnce = 8

// Config is what a prober works with. All of it is required.
type Config struct {
	// Ask does a probe once; *handler.Handlers does.
	Ask func(context.Context, *v1.Probe, handler.Target) (handler.Outcome, error)
	// Tell is told what happens to a container, Wake that what the probes of a pod have found is not
	// what it was. Neither may block.
	Tell func(of podspec.Ref, eventType, reason, message string)
	Wake func(types.UID)
}

// Prober probes containers. All methods may be called from anywhere.
type Prober struct {
	cfg      Config
	measures measures
	born     time.Time
	wake     chan struct{} // capacity 1: something is due that was not

	mu       sync.Mutex // guards what follows, and all pods and probes
	pods     map[types.UID]*pod
	schedule schedule
}

// pod has the probes of a pod of which a container runs, or ran, that has any.
type pod struct {
	spec   *v1.Pod
	probes map[key]*probe
	series map[key]*series
	// found is replaced as a whole.
	found  map[string]status.Probed
	asking int      // how many are under way
	queue  []*probe // wait for one of those to end
}

type key struct {
	container string
	kind      Kind
}

// state is what is about to happen with a probe; the package comment has the picture.
type state int

const (
	held state = iota
	scheduled
	queued
	asking
	dropped
)

// probe is one of a container that runs.
type probe struct {
	key
	pod    *pod
	spec   *v1.Probe
	target handler.Target
	state  state
	due    time.Time
	at     int // in the schedule
	run    run
	answer status.Answer
	cancel context.CancelFunc // of the asking under way
}

// New returns a prober that asks nothing until Run.
func New(cfg Config) (*Prober, error) {
	m, err := newMeasures()
	return &Prober{
		cfg: cfg, measures: m, born: time.Now(), wake: make(chan struct{}, 1),
		pods: map[types.UID]*pod{},
	}, err
}

// Probed is what the probes of the pod's containers have found, by container id. It must not be
// written to.
func (p *Prober) Probed(uid types.UID) map[string]status.Probed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one, ok := p.pods[uid]; ok {
		return one.found
	}
	return nil
}

// Follow probes what runs of a pod as its status has it. One that is being ended is only asked
// whether it is ready.
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
	if status.Ended(s.Phase) {
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

// wantLocked has a probe that is wanted, and schedules it once it may be done.
func (p *Prober) wantLocked(one *pod, k key, w want, now time.Time) {
	is, known := one.probes[k]
	if !known {
		is = &probe{key: k, pod: one, spec: w.spec}
		if k.kind == Startup && w.started { // as it was found before this agent ran
			is.answer = status.Passes
		}
		one.probes[k] = is
		if one.series[k] == nil {
			one.series[k] = p.measures.of(one.spec, k)
		}
	}
	is.target = w.target // the address of a pod may come late
	if k.kind == Startup && w.started && is.answer == status.NoAnswer && is.state == scheduled {
		p.schedule.remove(is) // that it was found before this agent ran came late
		is.state, is.answer = held, status.Passes
	}
	if is.state != held || !w.open || is.answer != status.NoAnswer {
		return
	}
	keeps := w.settled && w.since.Before(p.born)
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

// tally brings up to date what the pod's probes have found, and reports whether it is not what it
// was.
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
