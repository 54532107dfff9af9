package rig

import (
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// statistics sums up the events of a run.
type statistics struct {
	machine *topology.Machine
	meter   *meter
	out     Outcome
	reasons map[Reason]int
	spans   map[topology.NodeSet]span
	nodes   int     // summed over all placed pods
	apart   float64 // mean distances, summed over all placed pods
	waits   time.Duration
	running int
	times   []time.Duration
	resizes resizeCount
}

// newStatistics starts at zero. static places memory on nodes; nil if memory is only counted.
func newStatistics(site *Site, p Policy, s Stream, static *memory.Static) *statistics {
	t := &statistics{
		machine: site.Machine, meter: newMeter(site, p, s, static),
		reasons: map[Reason]int{}, spans: map[topology.NodeSet]span{},
	}
	for _, shape := range s.Shapes {
		t.out.Shapes = append(t.out.Shapes, ShapeCount{Name: shape.Name})
	}
	return t
}

// at sets the time of the following events.
func (s *statistics) at(now time.Duration) { s.meter.gauges.advance(now) }

func (s *statistics) took(d time.Duration) { s.times = append(s.times, d) }

func (s *statistics) arrived(shape int) {
	s.out.Pods.Arrived++
	s.out.Shapes[shape].Arrived++
}

func (s *statistics) rejected(r Reason) {
	s.out.Pods.Rejected++
	s.reasons[r]++
}

func (s *statistics) waited(d time.Duration) {
	s.out.Pods.Waited++
	s.waits += d
}

func (s *statistics) waiting(n int) { s.meter.set(gaugeWaiting, float64(n)) }

func (s *statistics) admitted(shape int, pod tenant) {
	s.out.Pods.Admitted++
	s.out.Shapes[shape].Admitted++
	s.running++
	s.out.Pods.Most = max(s.out.Pods.Most, s.running)
	if s.place(pod) {
		s.out.Shapes[shape].Aligned++
	}
	s.meter.move(pod, s.running, -1)
}

func (s *statistics) left(pod tenant) {
	s.running--
	s.meter.move(pod, s.running, 1)
}

// place counts where a pod was placed, and reports whether it is aligned.
func (s *statistics) place(pod tenant) bool {
	p := &s.out.Placement
	all := []allocation.Container{pod.held.Pool()}
	for c := range podspec.Containers(pod.shape.Pod) {
		held := pod.held.Containers[c.Name]
		all = append(all, held)
		switch {
		case held.CPUs().IsEmpty():
			p.ByCPUs.Node++
		case pod.held.SharesCPUs(pod.shape.Pod, c):
			p.ByCPUs.Pod++
		default:
			p.ByCPUs.Own++
		}
		pairs, near := pairsOf(s.machine, held)
		p.Pairs, p.SwitchPairs = p.Pairs+pairs, p.SwitchPairs+near
		if one := spotOf(s.machine, held); !one.nodes.IsEmpty() {
			p.PlacedContainers++
			p.AlignedContainers += count(one.aligned)
		}
	}
	whole := spotOf(s.machine, all...)
	width := whole.nodes.Len()
	if width == 0 {
		return false
	}
	for len(p.Spread) < width {
		p.Spread = append(p.Spread, 0)
	}
	p.Spread[width-1]++
	p.Placed++
	p.Aligned += count(whole.aligned)
	far, known := s.spans[whole.nodes]
	if !known {
		far = spanOf(s.machine, whole.nodes)
		s.spans[whole.nodes] = far
	}
	s.nodes += width
	s.apart += far.mean
	p.MostDistance = max(p.MostDistance, far.most)
	return whole.aligned
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// outcome returns everything but the timing.
func (s *statistics) outcome(waiting int) Outcome {
	out := s.out
	out.Pods.Waiting = waiting
	if out.Pods.Waited > 0 {
		out.Pods.MeanWait = rounded(s.waits.Seconds() / float64(out.Pods.Waited))
	}
	if n := float64(out.Placement.Placed); n > 0 {
		out.Placement.MeanNodes = rounded(float64(s.nodes) / n)
		out.Placement.MeanDistance = rounded(s.apart / n)
		out.Placement.AlignedShare = rounded(float64(out.Placement.Aligned) / n)
	}
	out.Pods.AdmittedShare = share(out.Pods.Admitted, out.Pods.Arrived)
	out.Shapes = slices.Clone(out.Shapes)
	for i := range out.Shapes {
		out.Shapes[i].AdmittedShare = share(out.Shapes[i].Admitted, out.Shapes[i].Arrived)
	}
	out.Reasons = sorted(s.reasons)
	out.Resources, out.Series = s.meter.result()
	return out
}

// share returns part divided by of; 0 if of is 0.
func share(part, of int) float64 {
	if of == 0 {
		return 0
	}
	return rounded(float64(part) / float64(of))
}

// timing summarizes how long decisions took.
func (s *statistics) timing(wall time.Duration) *Timing {
	out := &Timing{Decisions: len(s.times), Wall: rounded(wall.Seconds())}
	if len(s.times) == 0 {
		return out
	}
	slices.Sort(s.times)
	total := time.Duration(0)
	for _, d := range s.times {
		total += d
		at := bits.Len64(uint64(d / time.Microsecond))
		for len(out.Histogram) <= at {
			out.Histogram = append(out.Histogram, 0)
		}
		out.Histogram[at]++
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()/10) / 100 }
	// quantile returns the smallest time that at least q of 1000 decisions did not exceed.
	quantile := func(q int) float64 { return micros(s.times[(len(s.times)*q+999)/1000-1]) }
	out.Mean = micros(total / time.Duration(len(s.times)))
	out.P50, out.P90, out.P99 = quantile(500), quantile(900), quantile(990)
	out.Max = quantile(1000)
	return out
}

// reasonOf classifies a refusal; ok is false for other errors. Of stays empty if there is enough of
// each resource, but not on the same nodes.
func reasonOf(c explain.Case) (reason Reason, ok bool) {
	err := c.Err
	if unready, ok := errors.AsType[*allocation.Unready](err); ok {
		return Reason{Reason: "OutOf" + unready.Resource, Of: unready.Resource}, true
	}
	var rejection *allocation.Rejection
	if !errors.As(err, &rejection) {
		return Reason{}, false
	}
	reason.Reason = rejection.Reason
	if blocking := c.Attempt().Blocking; blocking != nil && !blocking.Apart {
		reason.Of = blocking.Resource
	}
	return reason, true
}
