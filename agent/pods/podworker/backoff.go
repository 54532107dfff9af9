package podworker

import (
	"cmp"
	"time"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// BackOff is the delay before a container that keeps exiting is started again, counted from its
// exit: none the first time, then Initial, then twice as long each time, up to Max. A run longer
// than Reset, or another definition, makes the next exit the first again.
//
// A container or a sandbox is never made again before as much time has passed since it was last
// made, whatever became of it.
type BackOff struct {
	Initial, Max, Reset time.Duration
}

// Defaults of the back-off and of the times around it.
const (
	DefaultInitial = 10 * time.Second
	DefaultMax     = 5 * time.Minute
	// ReducedInitial and ReducedMax hold with the gate ReduceDefaultCrashLoopBackOffDecay.
	ReducedInitial = time.Second
	ReducedMax     = time.Minute
	DefaultReset   = 10 * time.Minute
	DefaultRetry   = 10 * time.Second
	DefaultSync    = time.Minute
)

func (b BackOff) withDefaults() BackOff {
	b.Max = cmp.Or(b.Max, DefaultMax)
	b.Initial = cmp.Or(b.Initial, min(DefaultInitial, b.Max))
	b.Reset = cmp.Or(b.Reset, DefaultReset)
	return b
}

// delay returns the wait after the exit of an attempt, with crashes counted from attempt first.
func (b BackOff) delay(attempt, first uint32) time.Duration {
	if attempt <= first {
		return 0
	}
	return await.Pauses{First: b.Initial, Last: b.Max}.After(int(attempt - first - 1))
}

// countFrom returns the attempt whose exit counts as the first: the last one that ran long, or the
// first with this definition hash, and with the resources for which a resize started it anew. Records get removed,
// so known, the previous answer, holds where they show nothing later.
func (b BackOff) countFrom(known uint32, hash string, records []cri.Container) uint32 {
	for _, r := range records {
		resized := r.Annotations[resize.Annotation] != records[0].Annotations[resize.Annotation]
		if resized || r.From.Hash != "" && r.From.Hash != hash {
			known = max(known, r.Attempt+1)
		}
		if !r.StartedAt.IsZero() && r.Exit.At.Sub(r.StartedAt) > b.Reset {
			known = max(known, r.Attempt)
		}
	}
	return known
}

// sandboxesInRow returns the number of sandboxes made since the last one that ran longer than
// Reset.
func (b BackOff) sandboxesInRow(observed cri.Pod) uint32 {
	newest, end := observed.Sandboxes[0].Attempt, observed.ReadAt
	for _, s := range observed.Sandboxes {
		if end.Sub(s.CreatedAt) > b.Reset {
			return newest - min(s.Attempt, newest) + 1
		}
		end = s.CreatedAt
	}
	return newest + 1
}

// creations counts how often a container, or the sandbox, was made since the last one that ran
// longer than Reset.
type creations struct {
	count uint32
	last  time.Time
	hash  string // the container's definition
}

// pause is a wait that began at a time; the zero pause is no wait.
type pause struct {
	since time.Time
	delay time.Duration
}

func (p pause) end() time.Time { return p.since.Add(p.delay) }

// lasts reports whether the wait is not over. A wait that begins in the future does not count: the
// machine's clock, which dates the exits, was set back, perhaps by hours.
func (p pause) lasts(now time.Time) bool {
	return p.delay > 0 && p.end().After(now) && !p.since.After(now)
}
