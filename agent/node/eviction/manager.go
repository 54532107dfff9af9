package eviction

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/metric"
)

const (
	// period is the time between two looks if nothing is near a threshold and nothing wakes the manager;
	// soon is that while a threshold is met, next that while a pod ends or something was reclaimed, and
	// least that at any time, even if the manager is woken.
	period, soon, next, least = 10 * time.Second, time.Second, 200 * time.Millisecond,
		100 * time.Millisecond
	// leastGrace is the least time that a pod gets to exit, and its time when a hard threshold is met.
	leastGrace = time.Second
)

// Eviction is of a pod that the node ends.
type Eviction struct {
	Pod    *v1.Pod
	Signal Signal
	Grace  time.Duration
	Words
	// OwnLimit: the pod exceeded a limit of its own.
	OwnLimit bool
}

// Reclaim says what is to be removed that no pod needs.
type Reclaim struct{ Containers, Images bool }

// String names what is removed.
func (r Reclaim) String() string {
	var out []string
	if r.Containers {
		out = append(out, "dead containers")
	}
	if r.Images {
		out = append(out, "unused images")
	}
	return strings.Join(out, " and ")
}

// Config connects a Manager to the node. All of it is required.
type Config struct {
	Thresholds []Threshold
	// Pressure takes the conditions that hold.
	Pressure *Pressure
	// Transition is how long a condition holds at least (evictionPressureTransitionPeriod).
	Transition time.Duration
	// MaxGrace is the most that a pod gets to exit when a soft threshold is met.
	MaxGrace time.Duration
	Meter
	PodFacts
	// Reclaim removes what no pod needs, and reports whether there was something.
	Reclaim func(context.Context, Reclaim) (bool, error)
	// Evict ends a pod; it must not block.
	Evict func(Eviction)
	// Tell records an event of the node.
	Tell     func(eventType, reason, message string)
	Registry metrics.KubeRegistry
}

// Meter says what the node uses.
type Meter struct {
	// Glance returns what the node uses now, without what could not be read. It is called often, and
	// must be quick.
	Glance func(context.Context) (statsapi.Summary, Host, error)
	// Measure also returns what pods use of the signal's resource.
	Measure func(context.Context, Signal) (Measured, error)
	// Anew has what these pods have on disks measured anew, the first ones first, and returns which will
	// be soon, and which later. It does not wait for it.
	Anew func([]types.UID) (soon, late []types.UID)
	// Woken has a value when the kernel says that something runs short. Arm gets how much may be used
	// before the signal's threshold is met, after each look.
	Woken <-chan struct{}
	Arm   func(context.Context, Signal, int64)
}

// Measured has the use of the node and its pods.
type Measured struct {
	statsapi.Summary
	Host Host
	At   time.Time
	// Beyond has what pods use of disks beyond that, if it was asked for a disk.
	Beyond map[types.UID]Beyond
}

// PodFacts says what is known of pods.
type PodFacts struct {
	// Pods lists the pods that have not ended and are not being evicted; Exclusive reports whether one
	// has its own devices or CPUs.
	Pods      func() []*v1.Pod
	Exclusive func(types.UID) bool
	// Holds reports whether something of a pod runs, or what it held of the node is not free yet.
	Holds func(types.UID) bool
	// Last returns the newest eviction of an earlier run of the agent whose pod has something left on the
	// node, and what was short.
	Last func() (uid types.UID, short Signal, ok bool)
	// Grace is how long a pod gets to exit by its own spec.
	Grace func(*v1.Pod) time.Duration
}

// Manager watches memory, disks and PIDs.
type Manager struct {
	cfg    Config
	evicts *metrics.CounterVec
	age    *metrics.HistogramVec

	// Owned by Run.
	state state
	// acted is when something was done last; nothing is done before again. removed is when dead
	// containers were removed last.
	acted, again, removed time.Time
	refresh               refresh
	blind                 complaint.Complaint[string]
	vain                  complaint.Complaint[Signal] // it is short, and there is no pod to evict

	noted notes // of pods that others evict

	mu     sync.Mutex // guards looked
	looked lastLook
}

// New returns a manager that has not looked yet.
func New(cfg Config) (*Manager, error) {
	var s metric.Set
	const signal = "eviction_signal"
	m := &Manager{cfg: cfg,
		evicts: s.Counters("kubelet_evictions", "Pods evicted, by what was short.", signal),
		age: s.Histograms("kubelet_eviction_stats_age_seconds",
			"Age of what was measured when a pod was evicted, by what was short.",
			metrics.DefBuckets, signal),
	}
	return m, s.Register(cfg.Registry)
}

// Run looks until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.cfg.Thresholds) == 0 {
		return nil
	}
	if uid, short, ok := m.cfg.Last(); ok {
		m.state = m.state.gives(returning{uid: uid, signal: short, until: time.Now().Add(patience)})
	}
	for m.rest(ctx, m.look(ctx)) {
	}
	return nil
}

// rest waits until the next look is due, or for the kernel. It reports false if ctx ended.
func (m *Manager) rest(ctx context.Context, d time.Duration) bool {
	if !await.For(ctx, min(d, least)) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-m.cfg.Woken:
	case <-time.After(d - least):
	}
	return true
}

// look looks once and acts, and returns the time to the next look. It looks too while the end of a pod
// is awaited: conditions and grace periods go on.
func (m *Manager) look(ctx context.Context) time.Duration {
	now := time.Now()
	m.ends(now)
	summary, host, err := m.cfg.Glance(ctx)
	if text := complaint.Of(err); ctx.Err() == nil && m.blind.Begins(text) {
		klog.FromContext(ctx).Error(err, "Whether the node runs short is not fully known")
	}
	readings := Read(summary, host)
	if len(readings) == 0 { // nothing is news
		return soon
	}
	v := m.judge(readings, now)
	m.arm(ctx, readings)
	if v.relieve == nil {
		m.vain.Changes("")
	}
	switch {
	case m.state.ending():
		return next
	case v.relieve == nil || now.Before(m.again):
		return pace(m.cfg.Thresholds, readings)
	case v.awaits != nil:
		m.removeDead(ctx, v)
		return next
	}
	return m.act(ctx, v.relieve.Signal)
}

// ends takes in which evicted pods have ended, and which others evict.
func (m *Manager) ends(now time.Time) {
	for _, one := range m.noted.take() {
		m.state = m.state.gives(one)
	}
	var changed bool
	if m.state, changed = m.state.ends(m.cfg.Holds, now); changed {
		m.acted = now
	}
}

// removeDead removes the containers of pods that have ended, whose room is awaited: of a disk they keep
// it until then.
func (m *Manager) removeDead(ctx context.Context, v verdict) {
	now := time.Now()
	if !v.relieve.Signal.OnDisk() || v.awaits.ended.IsZero() || now.Sub(m.removed) < soon {
		return
	}
	m.removed = now
	m.reclaim(ctx, v.relieve.Signal, Reclaim{Containers: true})
}

// reclaim removes what no pod needs; its room may come back later.
func (m *Manager) reclaim(ctx context.Context, s Signal, what Reclaim) {
	some, err := m.cfg.Reclaim(ctx, what)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Reclaiming", "resource", s.Resource())
	}
	if some {
		m.state = m.state.removed(s, time.Now())
	}
}

// act measures what pods use too, and relieves. It returns the time to the next look.
func (m *Manager) act(ctx context.Context, s Signal) time.Duration {
	now := time.Now()
	all, err := m.cfg.Measure(ctx, s)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The node runs short, and what its pods use is not known")
		}
		return soon
	}
	readings := Read(all.Summary, all.Host)
	v := m.judge(readings, now)
	switch {
	case v.relieve == nil || v.awaits != nil:
		return next
	case !all.At.After(m.acted): // measured before the last action
		return next
	case m.refreshes(all, readings, v, now):
		return least
	case m.relieve(ctx, all, v):
		return next
	}
	m.again = time.Now().Add(period)
	return soon
}

// judge takes in what was read, and has others know of other conditions.
func (m *Manager) judge(r Readings, now time.Time) verdict {
	var v verdict
	m.state, v = m.state.step(r, rules{m.cfg.Thresholds, m.cfg.Transition}, now)
	m.cfg.Pressure.set(v.pressure)
	m.tell(r, v, now)
	return v
}

// relieve removes what no pod needs, and ends a pod if that is not enough. It reports whether that may
// have helped.
func (m *Manager) relieve(ctx context.Context, s Measured, v verdict) bool {
	l := layoutOf(s.Summary)
	m.cfg.Tell(v1.EventTypeWarning, ReasonThresholdMet,
		fmt.Sprintf("Attempting to reclaim %v", v.relieve.Signal.Resource()))
	m.acted = time.Now()
	if what := reclaimable(v.relieve.Signal, l); what != (Reclaim{}) {
		m.reclaim(ctx, v.relieve.Signal, what)
		fresh, err := m.cfg.Measure(ctx, v.relieve.Signal)
		if err != nil || ctx.Err() != nil {
			return false
		}
		s = fresh
		signal, before := v.relieve.Signal, v.reading.Available
		readings := Read(fresh.Summary, fresh.Host)
		v = m.judge(readings, time.Now())
		m.did(signal, fmt.Sprintf("removed %v; %s more are available", what,
			rounded(signal.Resource(), max(readings[signal].Available-before, 0))))
		if v.relieve == nil || v.awaits != nil {
			return true
		}
	}
	return m.evict(ctx, s, v, l)
}

// evict ends the pod that goes first, and reports whether there is one.
func (m *Manager) evict(ctx context.Context, s Measured, v verdict, l layout) bool {
	order, _ := m.cfg.rank(s, v.relieve.Signal, v.need())
	if len(order) == 0 {
		if m.vain.Begins(v.relieve.Signal) {
			klog.FromContext(ctx).Info("The node runs short, and there is no pod to evict",
				"signal", v.relieve.Signal, "available", v.reading.Available)
		}
		return false
	}
	m.vain.Changes("")
	victim := &order[0]
	grace := leastGrace
	if v.relieve.Soft {
		grace = max(grace, min(m.cfg.MaxGrace, m.cfg.Grace(victim.Pod)))
	}
	e := Eviction{victim.Pod, v.relieve.Signal, grace, wordsOf(victim, v.relieve, v.reading), false}
	klog.FromContext(ctx).Info("Evicting a pod", "pod", klog.KObj(victim.Pod),
		"signal", e.Signal, "message", e.Message)
	for _, due := range v.due {
		m.age.WithLabelValues(string(due)).Observe(time.Since(s.At).Seconds())
	}
	name := klog.KObj(victim.Pod).String()
	m.state = m.state.gives(returning{of: name, uid: victim.Pod.UID, signal: e.Signal,
		used: useOf(victim, e.Signal, l).used, until: time.Now().Add(grace + patience)})
	m.Note(e)
	m.did(e.Signal, fmt.Sprintf("evicted %s, which %s", name, why(victim, e.Signal, l)))
	m.cfg.Evict(e)
	return true
}

// Note counts an eviction. It may be called from any goroutine, for a pod that another component evicts.
func (m *Manager) Note(e Eviction) {
	m.evicts.WithLabelValues(string(e.Signal)).Inc()
	if e.OwnLimit {
		m.did(e.Signal, fmt.Sprintf("evicted %s: %s", klog.KObj(e.Pod), strings.TrimSpace(e.Message)))
		m.noted.put(returning{of: klog.KObj(e.Pod).String(), uid: e.Pod.UID,
			signal: NodeFSAvailable, own: true, until: time.Now().Add(e.Grace + patience)})
	}
}

// reclaimable lists what helps against the signal where filesystems are laid out like this.
func reclaimable(s Signal, l layout) Reclaim {
	switch s {
	case NodeFSAvailable, NodeFSInodesFree:
		return Reclaim{Containers: !l.containers, Images: !l.images}
	case ImageFSAvailable, ImageFSInodesFree:
		return Reclaim{Containers: l.images == l.containers, Images: true}
	case ContainerFSAvailable, ContainerFSInodesFree:
		return Reclaim{Containers: true, Images: l.images == l.containers}
	}
	return Reclaim{}
}
