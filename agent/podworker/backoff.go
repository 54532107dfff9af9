package podworker

import (
	"cmp"
	"time"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// BackOff is how long a container that keeps exiting waits before it is started again, counted
// from its exit: not at all the first time, then Initial, then twice as long each time up to Max. A
// run longer than Reset makes the next exit the first again, and so does another definition.
//
// Whatever became of it, a container or a sandbox is not made again before as much time has passed
// since it was made the last time.
type BackOff struct {
	Initial, Max, Reset time.Duration
}

// Defaults of the back-off and of the times around it.
const (
	DefaultInitial = 10 * time.Second
	DefaultMax     = 5 * time.Minute
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

// delay is the wait after the exit of an attempt, with crashes counted from attempt first.
func (b BackOff) delay(attempt, first uint32) time.Duration {
	if attempt <= first {
		return 0
	}
	return await.Pauses{First: b.Initial, Last: b.Max}.After(int(attempt - first - 1))
}

// countFrom is the attempt whose exit counts as the first, as the records show it: the last one
// that ran long, or the first with the definition hash. Records get removed, so known, the
// answer of before, holds where they show nothing later.
func (b BackOff) countFrom(known uint32, hash string, records []cri.Container) uint32 {
	for _, r := range records {
		if r.From.Hash != "" && r.From.Hash != hash {
			known = max(known, r.Attempt+1)
		}
		if !r.StartedAt.IsZero() && r.Exit.At.Sub(r.StartedAt) > b.Reset {
			known = max(known, r.Attempt)
		}
	}
	return known
}

// sandboxesInRow is how many sandboxes were made since one that lasted, as the records show it.
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

// creations are those of a container, or of a pod's sandbox, since one that lasted.
type creations struct {
	count uint32
	last  time.Time
	hash  string // the container's definition
}

// pause is a wait that began at a time; the zero pause is none.
type pause struct {
	since time.Time
	delay time.Duration
}

func (p pause) end() time.Time { return p.since.Add(p.delay) }

// lasts reports whether the wait is not over. One that begins later than now is none: the machine's
// clock, by which the runtime says when a container exited, was set back since, perhaps by hours.
func (p pause) lasts(now time.Time) bool {
	return p.delay > 0 && p.end().After(now) && !p.since.After(now)
}
