package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Reason says in one word why a device is unhealthy.
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

// Trouble is one fault of a GPU.
type Trouble struct {
	Reason Reason
	// Text describes the fault, and what helps.
	Text string
}

func (t Trouble) String() string { return string(t.Reason) + ": " + t.Text }

// HealthRules say which faults count. The zero value counts all.
type HealthRules struct {
	// Off: only a GPU or driver that is gone or silent counts.
	Off bool
	// NoXIDs: events do not count.
	NoXIDs bool
	// Ignored lists XIDs that do not count, as those of class Application never do; Counted lists
	// XIDs that count whatever their class.
	Ignored, Counted []uint64
	// RecoverAfter is how long an XID counts without a repetition if nothing else tells whether it
	// is over; 0: until the GPU was reset.
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

// history holds what no reading shows of a GPU or a MIG device: each XID and when it last came. It
// is immutable.
type history map[uint64]time.Time

// with returns the history with one more event.
func (h history) with(xid uint64, now time.Time) history {
	next := history{}
	maps.Copy(next, h)
	next[xid] = now
	return next
}

// pruned returns the history that is left after a reading. An XID is over when the driver asks for
// no recovery any more, when its cause is readable and fine, or after some time.
func (h history) pruned(r Reading, rules HealthRules, now time.Time) history {
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

// settleTime is how long after an event a reading may still show the time before it.
const settleTime = 5 * time.Second

// troubles returns the faults known from events.
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

// troubles returns the readable faults, the worst first.
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

// ailing returns all faults of a GPU that count.
func ailing(r Reading, h history, rules HealthRules) []Trouble {
	all := r.troubles()
	if rules.Off {
		return slices.DeleteFunc(all, func(t Trouble) bool {
			return t.Reason != FellOffBus && t.Reason != NoAnswer
		})
	}
	return append(all, h.troubles()...)
}

// Describe joins troubles to a line; "" without any.
func Describe(all []Trouble) string {
	var parts []string
	for _, t := range all {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, "; ")
}

// reasonOf returns the first reason, for a metric's label; "" without any.
func reasonOf(all []Trouble) Reason {
	if len(all) == 0 {
		return ""
	}
	return all[0].Reason
}
