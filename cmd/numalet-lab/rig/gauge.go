package rig

import (
	"math"
	"time"
)

// parts is the number of averages in a series.
const parts = 120

// gauges follow quantities over time and average each over every part. Time after the end does not
// count.
type gauges struct {
	end    time.Duration
	step   float64 // length of a part in nanoseconds
	at     time.Duration
	values []float64   // in force since at
	sums   [][]float64 // by quantity and part: value times nanoseconds
}

func newGauges(quantities int, end time.Duration) *gauges {
	end = max(end, time.Nanosecond)
	g := &gauges{end: end, step: float64(end) / parts, values: make([]float64, quantities)}
	for range quantities {
		g.sums = append(g.sums, make([]float64, parts))
	}
	return g
}

// advance adds the present values up to a time; the caller then changes the values.
func (g *gauges) advance(to time.Duration) {
	to = min(to, g.end)
	from, until := float64(g.at), float64(to)
	for part := min(parts-1, int(from/g.step)); from < until; part++ {
		edge := until
		if part < parts-1 {
			edge = min(until, float64(part+1)*g.step)
		}
		if length := edge - from; length > 0 {
			for i, v := range g.values {
				g.sums[i][part] += v * length
			}
		}
		from = max(from, edge)
		if part >= parts-1 {
			break
		}
	}
	g.at = max(g.at, to)
}

// stop moves the end to the present time.
func (g *gauges) stop() { g.end = max(g.at, time.Nanosecond) }

// mean returns a quantity's average over the whole time.
func (g *gauges) mean(quantity int) float64 {
	total := 0.0
	for _, sum := range g.sums[quantity] {
		total += sum
	}
	return rounded(total / float64(g.end))
}

// line returns a quantity's averages by part, up to the end; the last part may be shorter.
func (g *gauges) line(quantity int) []float64 {
	out := make([]float64, 0, parts)
	for i, sum := range g.sums[quantity] {
		length := min(g.step, float64(g.end)-float64(i)*g.step)
		if length <= 0 || i > 0 && length < g.step/1e6 {
			break
		}
		out = append(out, rounded(sum/length))
	}
	return out
}

// rounded keeps four digits after the point, enough for readers of a report.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }
