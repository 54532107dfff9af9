package rig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/topology"
)

// Options hold the parameters of Run beside the policy.
type Options struct {
	// Wait is how long a pod without a place is retried; 0: it is rejected at once.
	Wait time.Duration
	// Clock returns the time since a fixed moment; nil: nothing is timed.
	Clock func() time.Duration
	// Progress, if not nil, is called from time to time with the number of pods that have arrived.
	Progress func(arrived int)
	// Follow, if not nil, gets every decision. Its error ends the run.
	Follow func(Decision) error
}

// checkEvery is the number of arrivals between two checks of the sums over all running pods.
const checkEvery = 4096

// progressEvery is the number of arrivals between two reports of progress.
const progressEvery = 512

// Run lets the pods of a stream arrive and leave under one policy. It fails if ctx ends, if the
// machine cannot follow the policy, or if the policy breaks a rule. If ctx ends the run, the
// outcome covers the pods that had arrived by then.
func Run(ctx context.Context, site *Site, p Policy, s Stream, o Options) (Outcome, error) {
	r, err := newRun(site, p, s, o)
	if err != nil {
		return Outcome{}, fmt.Errorf("policy %s: %w", p.Name, err)
	}
	began := r.clock()
	for i := range s.Arrivals {
		if o.Progress != nil && i%progressEvery == 0 {
			o.Progress(i)
		}
		if ctx.Err() != nil {
			r.stats.meter.gauges.stop()
			return r.outcome(p, r.clock()-began), context.Cause(ctx)
		}
		err := r.until(s.Arrivals[i].At)
		if err == nil {
			err = r.arrive(i)
		}
		if err == nil && i%checkEvery == 0 {
			err = r.check()
		}
		if err != nil {
			return Outcome{}, fmt.Errorf("policy %s: pod %d, at %v: %w", p.Name, i+1,
				s.Arrivals[i].At, err)
		}
	}
	if err := r.check(); err != nil {
		return Outcome{}, fmt.Errorf("policy %s: at the end: %w", p.Name, err)
	}
	if o.Progress != nil {
		o.Progress(len(s.Arrivals))
	}
	return r.outcome(p, r.clock()-began), nil
}

// run is the state of a running stream.
type run struct {
	options Options
	stream  Stream
	lots    []*lot
	world   *world
	stats   *statistics
	leaving []departure // the next one is last
	queue   queue
	sizes   []*lot    // of the stream
	resizes *resizing // nil: no pod is resized
}

func newRun(site *Site, p Policy, s Stream, o Options) (*run, error) {
	site = site.under(p)
	w, err := newWorld(site, p)
	if err != nil {
		return nil, err
	}
	r := &run{options: o, stream: s, world: w, lots: newLots(s.Shapes, w.room.View), queue: newQueue()}
	r.stats = newStatistics(site, p, s, w.room.Memory)
	if len(s.Sizes) > 0 {
		r.sizes = newLots(shapesOf(s.Sizes), w.room.View)
		r.resizes = newResizing(w, p, o.Wait, r.answered)
	}
	return r, nil
}

// check compares the sums with what the running pods have, and what the line knows with that.
func (r *run) check() error {
	if err := r.world.check(); err != nil || r.resizes == nil {
		return err
	}
	return r.resizes.check(r.world)
}

func (r *run) clock() time.Duration {
	if r.options.Clock == nil {
		return 0
	}
	return r.options.Clock()
}

// until processes everything due up to a time.
func (r *run) until(to time.Duration) error {
	for {
		next := to + 1
		if n := len(r.leaving); n > 0 {
			next = r.leaving[n-1].at
		}
		if at, asks := r.resizes.next(); asks {
			next = min(next, at)
		}
		if first, waits := r.queue.next(nil); waits {
			next = min(next, r.deadline(first))
		}
		if next > to {
			return nil
		}
		if err := r.pass(next); err != nil {
			return err
		}
	}
}

// pass processes what is due at a moment: pods leave, then pods ask for other resources, then pods that have
// waited too long are rejected, then the others are tried again.
func (r *run) pass(at time.Duration) error {
	freed := false
	for n := len(r.leaving); n > 0 && r.leaving[n-1].at == at; n-- {
		if err := r.leave(r.leaving[n-1]); err != nil {
			return err
		}
		r.leaving, freed = r.leaving[:n-1], true
	}
	resized, err := r.resize(at)
	if err != nil {
		return err
	}
	for first, waits := r.queue.next(nil); waits && r.deadline(first) <= at; first, waits = r.queue.next(nil) {
		reason := r.queue.remove(r.stream.Arrivals[first].Shape)
		r.stats.at(at)
		if err := r.rejected(at, first, reason); err != nil {
			return err
		}
	}
	if freed || resized {
		return r.retry(at)
	}
	return nil
}

func (r *run) deadline(arrival int) time.Duration {
	return r.stream.Arrivals[arrival].At + r.options.Wait
}

func (r *run) leave(d departure) error {
	t := r.world.leave(d.arrival)
	r.stats.at(d.at)
	r.stats.left(t)
	if r.resizes != nil {
		waited, err := r.resizes.left(d.at, d.arrival)
		if err != nil {
			return err
		}
		withdrawn(waited, &r.stats.resizes.Left)
	}
	return r.tell(Decision{At: d.at, Arrival: d.arrival, Kind: Left}, t.held)
}

func (r *run) arrive(i int) error {
	a := r.stream.Arrivals[i]
	r.stats.at(a.At)
	r.stats.arrived(a.Shape)
	if ahead, ok := r.queue.ahead(a.Shape); ok { // there is no place for it while these wait
		return r.wait(i, ahead)
	}
	reason, err := r.try(a.At, i)
	switch {
	case err != nil || reason == nil:
		return err
	case r.options.Wait > 0:
		return r.wait(i, *reason)
	}
	return r.rejected(a.At, i, *reason)
}

func (r *run) wait(i int, reason Reason) error {
	a := r.stream.Arrivals[i]
	r.queue.add(i, a.Shape, reason)
	r.stats.waiting(r.queue.size)
	return r.tell(Decision{At: a.At, Arrival: i, Kind: Waits, Reason: reason}, allocation.Pod{})
}

func (r *run) rejected(at time.Duration, i int, reason Reason) error {
	r.stats.rejected(reason)
	r.stats.waiting(r.queue.size)
	return r.tell(Decision{At: at, Arrival: i, Kind: Rejected, Reason: reason}, allocation.Pod{})
}

// retry tries the waiting pods in the order of arrival, and skips shapes that have found no place.
func (r *run) retry(at time.Duration) error {
	hopeless := map[int]bool{}
	for {
		i, ok := r.queue.next(hopeless)
		if !ok {
			return nil
		}
		shape := r.stream.Arrivals[i].Shape
		reason, err := r.try(at, i)
		if err != nil {
			return err
		}
		if reason != nil {
			hopeless[shape] = true
			r.queue.blame(shape, *reason)
			continue
		}
		r.queue.remove(shape)
		r.stats.waited(at - r.stream.Arrivals[i].At)
		r.stats.waiting(r.queue.size)
	}
}

// try admits a pod if there is a place; otherwise it returns the reason.
func (r *run) try(at time.Duration, i int) (*Reason, error) {
	a := r.stream.Arrivals[i]
	l := r.lots[a.Shape]
	claims, unscheduled := r.world.allocate(i, l)
	if unscheduled != nil {
		return unscheduled, nil
	}
	room := r.world.roomOf(l, claims)
	before := r.clock()
	plan, err := room.Plan(l.Pod, nil)
	if r.options.Clock != nil {
		r.stats.took(r.clock() - before)
	}
	if err != nil {
		reason, ok := reasonOf(explain.Case{
			Room: room, Pod: l.Pod, Plan: plan, Err: err,
		})
		if !ok {
			return nil, err
		}
		return &reason, nil
	}
	if err := r.world.admit(i, l, plan); err != nil {
		return nil, err
	}
	r.stats.admitted(a.Shape, tenant{l, plan.Pod})
	if r.resizes != nil {
		if err := r.resizes.admitted(at, i, r.world.live[i], a.Resizes); err != nil {
			return nil, err
		}
	}
	if a.Lifetime > 0 {
		d := departure{at + a.Lifetime, i}
		place, _ := slices.BinarySearchFunc(r.leaving, d, later)
		r.leaving = slices.Insert(r.leaving, place, d)
	}
	return nil, r.tell(Decision{At: at, Arrival: i, Kind: Admitted}, plan.Pod)
}

// tell adds what the pod holds to a decision, and passes it to Follow.
func (r *run) tell(d Decision, held allocation.Pod) error {
	if r.options.Follow == nil {
		return nil
	}
	d.Held = holdingsOf(held)
	return r.options.Follow(d)
}

// holdingsOf lists what the containers of a pod hold, by name.
func holdingsOf(held allocation.Pod) (out []Holding) {
	for _, name := range slices.Sorted(maps.Keys(held.Containers)) {
		out = append(out, holding(name, held.Containers[name]))
	}
	return out
}

func holding(name string, c allocation.Container) Holding {
	h := Holding{
		Container: name, CPUs: c.CPUs().String(),
		Devices: idsOf(c.Devices()), Claims: idsOf(claimedBy(c)),
	}
	var nodes topology.NodeSet
	for _, b := range c.Memory() {
		if b.Size == 0 {
			continue
		}
		nodes = nodes.Union(b.Nodes)
		if h.Memory == nil {
			h.Memory = map[string]uint64{}
		}
		h.Memory[string(b.Resource)] += b.Size
	}
	h.MemoryNodes = nodes.String()
	return h
}

func (r *run) outcome(p Policy, wall time.Duration) Outcome {
	out := r.stats.outcome(r.queue.size)
	out.Policy, out.Settings = p.Name, p.settings(r.world.site)
	if r.resizes != nil {
		out.Resizes = r.stats.resizes.outcome(r.resizes.open)
	}
	if r.options.Clock != nil {
		out.Timing = r.stats.timing(wall)
	}
	return out
}

// departure is the time at which a pod leaves.
type departure struct {
	at      time.Duration
	arrival int
}

// later orders departures by time, the last first; at one time the last arrival comes first.
func later(a, b departure) int {
	return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.arrival, a.arrival))
}
