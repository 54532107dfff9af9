package rig

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
)

// resize has pods ask for what is due, and the line decide; done: a pod has other resources now.
func (r *run) resize(at time.Duration) (done bool, err error) {
	if r.resizes == nil {
		return false, nil
	}
	r.stats.at(at)
	for a, due := r.resizes.take(at); due; a, due = r.resizes.take(at) {
		if _, runs := r.world.live[a.arrival]; !runs {
			continue
		}
		replaced, unchanged, err := r.resizes.ask(a, r.sizes[a.size])
		if err != nil {
			return done, err
		}
		count := &r.stats.resizes
		withdrawn(replaced, &count.Replaced)
		if count.Asked++; unchanged {
			count.Unchanged++
		}
	}
	return r.resizes.settle(at)
}

// answered takes what the line says of a resize.
func (r *run) answered(a answer) error {
	d := Decision{At: r.resizes.now, Arrival: a.arrival, Kind: Resized}
	if a.Reason != "" {
		d.Kind, d.Reason = strings.ToLower(a.Reason), Reason{Reason: a.Reason, Of: cmp.Or(a.Rule, a.Lack)}
		r.stats.resizes.refused(a.ask, d.Reason)
		return r.tell(d, allocation.Pod{})
	}
	before, after, err := r.world.resize(a.arrival, r.sizes[a.size], a.held)
	if err != nil {
		return err
	}
	r.stats.resized(a.ask, r.resizes.now-a.at, before, after)
	return r.tell(d, after.held)
}

// resizeCount sums up resizes.
type resizeCount struct {
	Resizes
	reasons map[Reason]int
	delay   time.Duration
	shifts  map[Shift]*Shift // sums, by what they are of
}

// withdrawn counts a resize that a pod does not wait for any longer; nil: it waited for none.
func withdrawn(a *ask, as *int) {
	if a != nil && !a.infeasible {
		*as++
	}
}

// refused counts a resize that is deferred or infeasible.
func (c *resizeCount) refused(a *ask, why Reason) {
	if c.reasons == nil {
		c.reasons = map[Reason]int{}
	}
	c.reasons[why]++
	if why.Reason == v1.PodReasonInfeasible && !a.infeasible {
		c.Infeasible++
	}
}

// resized counts a resize that was done, with what the machine and the pod are like before and after.
func (s *statistics) resized(a *ask, delay time.Duration, before, after tenant) {
	c := &s.resizes
	if a.infeasible {
		c.Infeasible--
	}
	if a.deferred {
		c.Later++
		c.delay += delay
		c.MostDelay = max(c.MostDelay, delay.Seconds())
	} else {
		c.AtOnce++
	}
	change, had := &c.Shrunk, before.shape.demands()
	for name, n := range after.shape.demands() {
		if n > had[name] {
			change = &c.Grown
		}
	}
	*change++
	c.moved(s.aligned(before), s.aligned(after))
	was := s.meter.fragmentation()
	s.meter.move(before, s.running, 1)
	s.meter.move(after, s.running, -1)
	if !sameHoldings(before.held, after.held) {
		c.shifted(change == &c.Grown, was, s.meter.fragmentation())
	}
}

func sameHoldings(a, b allocation.Pod) bool {
	empty := func(h Holding) bool { return reflect.DeepEqual(h, Holding{Container: h.Container}) }
	return slices.EqualFunc(slices.DeleteFunc(holdingsOf(a), empty), slices.DeleteFunc(holdingsOf(b), empty),
		func(a, b Holding) bool { return reflect.DeepEqual(a, b) })
}

// aligned reports whether the pod holds something that has a NUMA node, and all of it on one.
func (s *statistics) aligned(t tenant) bool {
	return spotOf(s.machine, slices.Collect(maps.Values(t.held.Containers))...).aligned
}

func (c *resizeCount) moved(before, after bool) {
	switch {
	case before && !after:
		c.Spread++
	case after && !before:
		c.Gathered++
	}
}

// shifted adds what a resize made of the fragmentation.
func (c *resizeCount) shifted(grown bool, before, after map[string]float64) {
	if c.shifts == nil {
		c.shifts = map[Shift]*Shift{}
	}
	for name := range before {
		of := Shift{Resource: name, Grown: grown}
		if c.shifts[of] == nil {
			c.shifts[of] = &Shift{Resource: name, Grown: grown}
		}
		sum := c.shifts[of]
		sum.Resizes++
		sum.Before += before[name]
		sum.After += after[name]
	}
}

// outcome returns the counts at the end; open are the resizes that are not done.
func (c *resizeCount) outcome(open map[int]*ask) *Resizes {
	out := c.Resizes
	for _, a := range open {
		withdrawn(a, &out.Waiting)
	}
	if out.Later > 0 {
		out.MeanDelay = rounded(c.delay.Seconds() / float64(out.Later))
	}
	out.Reasons, out.Fragmentation = sorted(c.reasons), []Shift{}
	for _, sum := range c.shifts {
		mean, n := *sum, float64(sum.Resizes)
		mean.Before, mean.After = rounded(sum.Before/n), rounded(sum.After/n)
		out.Fragmentation = append(out.Fragmentation, mean)
	}
	slices.SortFunc(out.Fragmentation, func(a, b Shift) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), count(b.Grown)-count(a.Grown))
	})
	return &out
}

// sorted lists counted reasons, the most frequent first.
func sorted(counts map[Reason]int) []Reason {
	out := []Reason{}
	for reason, n := range counts {
		reason.Count = n
		out = append(out, reason)
	}
	slices.SortFunc(out, func(a, b Reason) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), strings.Compare(a.Reason, b.Reason),
			strings.Compare(a.Of, b.Of))
	})
	return out
}
