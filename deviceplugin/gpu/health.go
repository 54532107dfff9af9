package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Reason is why a device is not healthy, in one word.
type Reason string

const (
	DriverGone     Reason = "DriverGone"
	DriverHangs    Reason = "DriverHangs"
	FellOffBus     Reason = "FellOffBus"
	NoAnswer       Reason = "NoAnswer"
	MemoryErrors   Reason = "UncorrectableMemoryErrors"
	RemapPending   Reason = "RowRemapPending"
	RemapFailed    Reason = "RowRemapFailed"
	NVLinkDown     Reason = "NVLinkDown"
	CriticalXID    Reason = "CriticalXID"
	ActionRequired Reason = "RecoveryActionRequired"
	NoMPS          Reason = "MPSDaemonNotReady"
)

// Trouble is one thing that is wrong with a GPU.
type Trouble struct {
	Reason Reason
	// Text says it in full, and what helps.
	Text string
}

func (t Trouble) String() string { return string(t.Reason) + ": " + t.Text }

// HealthRules say what counts. The zero value counts everything.
type HealthRules struct {
	// Off: nothing but a GPU or driver that is gone counts.
	Off bool
	// NoXIDs: events do not count.
	NoXIDs bool
	// Ignored are XIDs that do not count beside those of applications; Counted are those that do,
	// whatever their class.
	Ignored, Counted []uint64
	// RecoverAfter is how long an XID counts that nothing else can be seen of, once no other has
	// come; 0 is until the GPU was reset.
	RecoverAfter time.Duration
}

// counts reports whether an XID makes the GPU unhealthy.
func (r HealthRules) counts(xid uint64) bool {
	switch class, _ := classOf(xid); {
	case r.Off || r.NoXIDs:
		return false
	case slices.Contains(r.Counted, xid):
		return true
	default:
		return class != Application && !slices.Contains(r.Ignored, xid)
	}
}

// history is what has happened to one GPU, or to one MIG device, that cannot be read: when each XID
// came last. It is never written to.
type history map[uint64]time.Time

// with is the history with one event more.
func (h history) with(xid uint64, now time.Time) history {
	next := history{}
	maps.Copy(next, h)
	next[xid] = now
	return next
}

// settled is what is left of the history after a reading. An XID is over when the driver wants
// nothing done any more, when what it was about can be read and is fine, or after some time.
func (h history) settled(r Reading, rules HealthRules, now time.Time) history {
	if len(r.troubles()) > 0 {
		return h
	}
	next := maps.Clone(h)
	for xid, at := range h {
		class, _ := classOf(xid)
		quiet := now.Sub(at)
		switch {
		case quiet < settleTime:
		case class == Readable, r.Advises, rules.RecoverAfter > 0 && quiet >= rules.RecoverAfter:
			delete(next, xid)
		}
	}
	return next
}

// settleTime is how long after an event a reading may still be of the time before.
const settleTime = 5 * time.Second

// troubles are what is wrong by the events.
func (h history) troubles() (out []Trouble) {
	for _, xid := range slices.Sorted(maps.Keys(h)) {
		class, text := classOf(xid)
		help := "it is healthy again when the driver wants no recovery"
		if class == Fatal {
			help = "reset the GPU (nvidia-smi --gpu-reset)"
		}
		out = append(out, Trouble{CriticalXID, fmt.Sprintf("XID %d, %s: %s", xid, text, help)})
	}
	return out
}

// troubles are what is wrong by what can be read, the worst first.
func (r Reading) troubles() (out []Trouble) {
	add := func(is bool, reason Reason, format string, args ...any) {
		if is {
			out = append(out, Trouble{reason, fmt.Sprintf(format, args...)})
		}
	}
	if r.Lost {
		add(true, FellOffBus, "the GPU does not answer; reboot the node")
		return out
	}
	if r.Silent != "" {
		add(true, NoAnswer, "the driver cannot read the GPU (%s); it is tried again, and if that "+
			"lasts, reset the GPU", r.Silent)
		return out
	}
	add(r.RemapFailed, RemapFailed, "no spare memory rows are left; replace the GPU")
	add(r.RemapPending, RemapPending, "a memory row waits to be replaced; reset the GPU")
	add(r.Uncorrected > 0, MemoryErrors, "%d uncorrectable since the last reset; reset the GPU",
		r.Uncorrected)
	add(r.LinksDown > 0, NVLinkDown, "%d of %d NVLinks are down; see nvidia-smi nvlink --status",
		r.LinksDown, r.LinksDown+r.LinksUp)
	add(r.Action != NoAction, ActionRequired, "the driver wants a %s", r.Action)
	return out
}

// ailing are all troubles of a GPU that count.
func ailing(r Reading, h history, rules HealthRules) []Trouble {
	all := r.troubles()
	if rules.Off {
		return slices.DeleteFunc(all, func(t Trouble) bool {
			return t.Reason != FellOffBus && t.Reason != NoAnswer
		})
	}
	return append(all, h.troubles()...)
}

// describe is all troubles in a line; "" is none.
func describe(all []Trouble) string {
	var parts []string
	for _, t := range all {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, "; ")
}

// reasonOf is the first reason, for a metric's label; "" is none.
func reasonOf(all []Trouble) Reason {
	if len(all) == 0 {
		return ""
	}
	return all[0].Reason
}
