package eviction

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// state holds what is remembered from one look to the next. It is a value: step returns the next
// one.
type state struct {
	// since has the thresholds that are met, by their place in the list, and since when.
	since map[int]time.Time
	// pressed has the time at which a met threshold called for each condition last.
	pressed map[v1.NodeConditionType]time.Time
	// returning is room that is not free yet, though its users end or have ended.
	returning []returning
	// marks says how fast each signal changes.
	marks map[Signal][2]mark
	// doubt is when an evicted pod was last seen to bring back next to nothing of what was expected.
	doubt time.Time
}

// verdict holds what follows from a look.
type verdict struct {
	// pressure are the conditions that hold.
	pressure []v1.NodeConditionType
	// relieve is the threshold to be relieved first; nil: none.
	relieve *Threshold
	reading Reading // of its signal
	// awaits names what must be free, as far as that is to come, before a pod is evicted for it;
	// nil: nothing.
	awaits *returning
	// due are the signals of all thresholds that could be relieved.
	due []Signal
}

// need is how much has to come back until the threshold is met no longer.
func (v verdict) need() int64 {
	return v.relieve.of(v.reading.Capacity, true) - v.reading.Available
}

// rules are the settings of a step.
type rules struct {
	thresholds []Threshold
	// transition is how long a condition holds after the last threshold for it was met: it does not go
	// back and forth with what is measured.
	transition time.Duration
}

// step takes in what was read. It is pure.
func (s state) step(r Readings, rules rules, now time.Time) (state, verdict) {
	next := state{since: map[int]time.Time{}, pressed: maps.Clone(s.pressed), marks: s.marked(r, now),
		doubt: s.doubt}
	for _, one := range s.returning {
		switch one = one.read(r, now); {
		case !one.over(now):
			next.returning = append(next.returning, one)
		case one.back < one.used/8:
			next.doubt = now
		}
	}
	if next.pressed == nil {
		next.pressed = map[v1.NodeConditionType]time.Time{}
	}
	maps.DeleteFunc(next.pressed, func(_ v1.NodeConditionType, at time.Time) bool {
		return now.Sub(at) >= rules.transition
	})
	var v verdict
	for i, t := range rules.thresholds {
		since, before := s.since[i]
		if _, known := r[t.Signal]; !known && before {
			next.since[i] = since // it could not be read: what was known stays
		} else if t.met(r, before) {
			if !before {
				since = now
			}
			next.since[i] = since
			next.pressed[kinds[t.Signal].condition] = now
			if now.Sub(since) >= t.Grace {
				v.due = append(v.due, t.Signal)
				if v.relieve == nil {
					v.relieve, v.reading = &rules.thresholds[i], r[t.Signal]
				}
			}
		}
	}
	if v.relieve != nil {
		v.awaits = next.awaits(v.relieve.Signal, r, now)
	}
	v.pressure = slices.Sorted(maps.Keys(next.pressed))
	return next, v
}
