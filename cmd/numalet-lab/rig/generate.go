package rig

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Stream is a sequence of pods that arrive and leave.
type Stream struct {
	Shapes []Shape
	// Sizes lists the amounts that pods ask for after resizes.
	Sizes []Size
	// Arrivals are ordered by time.
	Arrivals []Arrival
}

// Arrival is the arrival of one pod.
type Arrival struct {
	At time.Duration
	// Lifetime is how long the pod runs; 0: until the end.
	Lifetime time.Duration
	// Shape is an index in Stream.Shapes.
	Shape int
	// Resizes are ordered by time.
	Resizes []Resize
}

// end returns the time of the last arrival.
func (s Stream) end() time.Duration {
	if len(s.Arrivals) == 0 {
		return 0
	}
	return s.Arrivals[len(s.Arrivals)-1].At
}

// maxTime bounds times and lifetimes, so that their sum does not overflow.
const maxTime = 100 * 365 * 24 * time.Hour

// tick is the precision of times in a generated stream.
const tick = time.Millisecond

// defaultLoad is the load of a mix that sets none.
const defaultLoad = 0.9

// Draw holds the parameters of Generate beside the mix.
type Draw struct {
	Pods int
	Seed uint64
	// Load replaces the mix's load; 0: keep it.
	Load float64
}

// Generate draws a stream from a mix. It refuses a mix that asks for devices that the site lacks.
func (s *Site) Generate(m Mix, d Draw) (Stream, error) {
	var out Stream
	var first []int // of each template's sizes
	for _, t := range m.Templates {
		shape, err := s.shape(t.Name, t.PodSpec)
		if err == nil {
			err = s.lacks(shape)
		}
		if err != nil {
			return out, fmt.Errorf("mix %s: template %s: %w", m.Name, t.Name, err)
		}
		out.Shapes, first = append(out.Shapes, shape), append(first, len(out.Sizes))
		if t.Resizes != nil {
			out.Sizes = append(out.Sizes, t.Resizes.sizes(shape, len(out.Shapes)-1)...)
		}
	}
	if err := out.oneOwner(); err != nil {
		return out, fmt.Errorf("mix %s: %w", m.Name, err)
	}
	interval, err := s.interval(m, out.Shapes, d.Load)
	if err != nil {
		return out, fmt.Errorf("mix %s: %w", m.Name, err)
	}
	// Resizes have a source of their own: without them the same pods come.
	source, resizes := rand.New(rand.NewPCG(d.Seed, 0)), rand.New(rand.NewPCG(d.Seed, 1))
	var until []float64 // sums of the weights
	total := 0.0
	for _, t := range m.Templates {
		total += t.weight()
		until = append(until, total)
	}
	at := time.Duration(0)
	out.Arrivals = make([]Arrival, 0, d.Pods)
	for range d.Pods {
		at += time.Duration(source.ExpFloat64() * float64(interval)).Round(tick)
		if at > maxTime {
			return out, fmt.Errorf("mix %s: the pods come over more than %s; ask for fewer, or "+
				"raise the load", m.Name, maxTime)
		}
		pick := source.Float64() * total
		shape, _ := slices.BinarySearch(until, pick)
		shape = min(shape, len(until)-1)
		of := m.Templates[shape]
		a := Arrival{At: at, Lifetime: of.Lifetime.draw(source), Shape: shape}
		a.Resizes = of.Resizes.draw(resizes, a.Lifetime, first[shape])
		out.Arrivals = append(out.Arrivals, a)
	}
	return out, nil
}

// drawLifetime returns a function that draws lifetimes with a mean of 1; nil if the distribution is
// unknown.
func drawLifetime(distribution string) func(*rand.Rand) float64 {
	switch distribution {
	case "", "exponential":
		return (*rand.Rand).ExpFloat64
	case "fixed":
		return func(*rand.Rand) float64 { return 1 }
	case "uniform":
		return func(r *rand.Rand) float64 { return 2 * r.Float64() }
	case "lognormal":
		// With a sigma of 1 the mean of exp(normal) is exp(1/2).
		return func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64() - 0.5) }
	}
	return nil
}

// lacks returns an error that names a resource that pods of the shape need and the site lacks.
func (s *Site) lacks(shape Shape) error {
	demands := shape.demands()
	for _, name := range slices.Sorted(maps.Keys(demands)) {
		if demands[name] == 0 || s.capacity(name) > 0 {
			continue
		}
		if isCounted(name) {
			return fmt.Errorf("it asks for %s, of which the machine has none for pods", name)
		}
		return fmt.Errorf("it asks for %s, and the machine has none; invent some with "+
			"--devices %s=2 (two on each node), or choose another mix", name, shortName(name))
	}
	return nil
}

// interval returns the mean time between arrivals that yields the load: if all pods were admitted,
// the running pods would hold this share of the resource that the mix needs most of.
func (s *Site) interval(m Mix, shapes []Shape, load float64) (time.Duration, error) {
	if load == 0 {
		if m.Interval > 0 {
			return time.Duration(m.Interval), nil
		}
		load = defaultLoad
		if m.Load > 0 {
			load = m.Load
		}
	}
	total := 0.0
	for _, t := range m.Templates {
		total += t.weight()
	}
	held := map[string]float64{} // by resource: amount times nanoseconds of the average pod
	for i, t := range m.Templates {
		for name, n := range shapes[i].demands() {
			held[name] += t.weight() / total * float64(t.Lifetime.Mean) * float64(n)
		}
	}
	slowest := 0.0
	for name, n := range held {
		if has := s.capacity(name); has > 0 {
			slowest = max(slowest, n/float64(has))
		}
	}
	if slowest == 0 {
		return 0, errors.New("its pods ask for nothing; give it an interval")
	}
	return max(tick, time.Duration(slowest/load)), nil
}
