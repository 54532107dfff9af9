package eviction

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// patience is how long after its grace period the end of an evicted pod is awaited.
	patience = 30 * time.Second
	// stillDisk is how long nothing may come back of a disk before no more is expected: runtimes remove
	// layers when they find time. Memory and PIDs are free once nothing runs, but for what the kernel
	// frees late: still.
	stillDisk, still = 10 * time.Second, time.Second
	// longest is how long room is awaited that comes back little by little.
	longest = 2 * time.Minute
	// The node is in danger if what is available, falling as it did over a window, would be used up
	// within horizon.
	window, horizon = time.Second, 10 * time.Second
)

// returning is room on its way to be free: an evicted pod's, or of what was removed. The next pod is
// chosen when it is back:
//
//	ending -----------------> ended --------------------------------------> over
//	  |   nothing of the pod        most of it is back, or no more of it comes
//	  |   runs or is held           back for a while, or it takes longest
//	  '-----------------------------------------------------------------> over
//	      patience after its grace period
type returning struct {
	of     string    // the pod, namespace/name; "": not known
	uid    types.UID // "": not a pod
	signal Signal    // what comes back
	used   int64     // how much; 0: not known
	// own: the pod exceeded a limit of its own.
	own bool
	// until is when the pod's end is no longer awaited; ended when it was seen; zero: not yet.
	until, ended time.Time

	last  int64 // what was available last; negative: not known
	back  int64 // the sum of all growth of it
	moved time.Time
	seen  int64 // back at that time
}

// read takes in what is available now.
func (r returning) read(all Readings, now time.Time) returning {
	reading, known := all[r.signal]
	if !known {
		return r
	}
	if r.last >= 0 {
		r.back += max(reading.Available-r.last, 0)
	}
	r.last = reading.Available
	if r.back-r.seen > r.used/64 {
		r.seen, r.moved = r.back, now
	}
	return r
}

// over reports whether no more of it is awaited.
func (r returning) over(now time.Time) bool {
	rest := still
	if r.signal.OnDisk() {
		rest = stillDisk
	}
	ended := now.Sub(r.ended)
	return !r.ended.IsZero() && (r.used > 0 && r.back >= r.used-r.used/8 ||
		ended >= longest || ended >= rest && now.Sub(r.moved) >= rest)
}

// helps reports whether what comes back may relieve the signal.
func (r returning) helps(s Signal) bool { return kinds[r.signal].condition == kinds[s].condition }

// gives returns the state that also awaits r.
func (s state) gives(r returning) state {
	r.last = -1
	s.returning = append(slices.Clone(s.returning), r)
	return s
}

// ends takes in which pods have ended; changed reports whether the end of another one is awaited no
// longer.
func (s state) ends(holds func(types.UID) bool, now time.Time) (next state, changed bool) {
	next = s
	next.returning = nil
	for _, r := range s.returning {
		switch {
		case !r.ended.IsZero():
		case now.After(r.until):
			changed = true
			continue
		case !holds(r.uid):
			r.ended, r.moved, changed = now, now, true
			next.marks = nil // what was written until now may have been its
		}
		next.returning = append(next.returning, r)
	}
	return next, changed
}

// removed takes in that something was removed whose room may come back late: what ended pods left, or
// else what no pod needed.
func (s state) removed(what Signal, now time.Time) state {
	all, found := slices.Clone(s.returning), false
	for i, r := range all {
		if r.helps(what) && !r.ended.IsZero() {
			all[i].moved, found = now, true
		}
	}
	if !found {
		return s.gives(returning{signal: what, ended: now, moved: now})
	}
	s.returning = all
	return s
}

// awaits returns what is awaited before a pod is evicted for the signal; nil: nothing. The
// end of a pod is awaited in any case, but that of a pod which exceeded its own limit only if it helps the
// signal. Room is awaited only while the signal is not in danger.
func (s state) awaits(signal Signal, r Readings, now time.Time) *returning {
	for _, one := range s.returning {
		ending := one.ended.IsZero()
		switch {
		case ending && !one.own, one.helps(signal) && (ending || !s.danger(signal, r, now)):
			return &one
		}
	}
	return nil
}

// mark records what was available at a time.
type mark struct {
	at        time.Time
	available int64
}

// marked returns the marks with new ones: of each signal the last two that are at least a window apart.
func (s state) marked(r Readings, now time.Time) map[Signal][2]mark {
	next := make(map[Signal][2]mark, len(kinds))
	for signal := range kinds {
		two, has := s.marks[signal]
		if reading, known := r[signal]; known && now.Sub(two[1].at) >= window {
			two[0], two[1], has = two[1], mark{now, reading.Available}, true
		}
		if has {
			next[signal] = two
		}
	}
	return next
}

// danger reports whether what is left of the signal would soon be used up.
func (s state) danger(signal Signal, r Readings, now time.Time) bool {
	return s.lasts(signal, r, now) < horizon
}

// lasts returns how long what is left of the signal lasts, at most the horizon.
func (s state) lasts(signal Signal, r Readings, now time.Time) time.Duration {
	from, left := s.marks[signal][0], r[signal].Available
	fell := from.available - left
	if from.at.IsZero() || fell <= 0 {
		return horizon
	}
	return time.Duration(min(float64(left)/float64(fell)*float64(now.Sub(from.at)), float64(horizon)))
}

// awaited returns the pod whose end is awaited, and the ended one whose room is; "": none.
func (s state) awaited() (ending, freeing string) {
	for _, r := range s.returning {
		switch {
		case r.of == "":
		case r.ended.IsZero():
			ending = r.of
		default:
			freeing = r.of
		}
	}
	return ending, freeing
}

// ending reports whether the end of a pod is awaited that was evicted as the node was short.
func (s state) ending() bool {
	return slices.ContainsFunc(s.returning, func(r returning) bool { return r.ended.IsZero() && !r.own })
}

// mostNotes bounds notes: without thresholds Run takes none.
const mostNotes = 256

// notes hold evictions by other components until Run takes them in. Of too many the oldest are forgotten.
type notes struct {
	mu  sync.Mutex // guards all
	all []returning
}

func (n *notes) put(one returning) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all[max(0, len(n.all)+1-mostNotes):], one)
}

func (n *notes) take() []returning {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}
