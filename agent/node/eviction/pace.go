package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// speeds are how much of a resource may be used up in a second: the next look comes before that could
// meet a threshold. Faster use is seen when the kernel wakes the manager, or at the next look.
var speeds = map[v1.ResourceName]int64{
	v1.ResourceMemory:           1 << 30,
	v1.ResourceEphemeralStorage: 1 << 30,
	resourceInodes:              200_000,
	resourcePIDs:                20_000,
}

// pace returns the time to the next look.
func pace(thresholds []Threshold, r Readings) time.Duration {
	pace := period
	for _, t := range thresholds {
		left, known := t.left(r)
		switch speed := speeds[t.Signal.Resource()]; {
		case !known:
		case left <= 0:
			pace = min(pace, soon)
		case left < speed*int64(period/time.Second):
			pace = min(pace, max(time.Duration(float64(left)/float64(speed)*float64(time.Second)), least))
		}
	}
	return pace
}

// arm says of each signal how much is left before its next threshold is met.
func (m *Manager) arm(ctx context.Context, r Readings) {
	next := map[Signal]int64{}
	for _, t := range m.cfg.Thresholds {
		left, known := t.left(r)
		if nearest, has := next[t.Signal]; known && left > 0 && (!has || left < nearest) {
			next[t.Signal] = left
		}
	}
	for signal, left := range next {
		m.cfg.Arm(ctx, signal, left)
	}
}

// left returns how much may be used before the threshold is met; known is false if it was not read.
func (t Threshold) left(r Readings) (left int64, known bool) {
	reading, known := r[t.Signal]
	return reading.Available - t.of(reading.Capacity, false), known
}
