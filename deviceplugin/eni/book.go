package eni

import (
	"maps"
	"slices"
	"time"
)

// Phase says who has an interface that is offered.
type Phase string

// The phases; doc.go shows what leads from one to the other.
const (
	Free      Phase = "free"
	Handed    Phase = "handed"
	Returning Phase = "returning"
)

// Record is what is remembered of one interface that is offered.
type Record struct {
	Resource string `json:"resource"`
	// Home is the interface as it was before it was handed out.
	Home  Interface `json:"home"`
	Phase Phase     `json:"phase"`
	// Pod is the UID of the pod that has it, where the agent says that.
	Pod string `json:"pod,omitempty"`
	// Since is when it was handed out. Seen: its pod was known to the agent since.
	Since time.Time `json:"since,omitzero"`
	Seen  bool      `json:"seen,omitempty"`
	// Missed is since when the agent, asked again and again, has not known its pod.
	Missed time.Time `json:"-"`
	// Prepared is when a container that the runtime gives it to was to start last.
	Prepared time.Time `json:"-"`
	// Problem says why it could not be brought back.
	Problem string `json:"-"`
}

const (
	// unseenFor is how long an interface stays handed out whose pod the agent never told of: it was
	// not admitted in the end.
	unseenFor = 2 * time.Minute
	// missedFor is how long it stays so when the agent tells no longer of the pod. An agent that has
	// just started does not know its pods yet.
	missedFor = 30 * time.Second
	// movedWithin is how long a runtime takes, at most, to move an interface into a container.
	movedWithin = 10 * time.Second
)

// Book has a record for each interface that is offered, by id.
type Book map[string]Record

// sight is what is seen of the host and its pods at one time.
type sight struct {
	choices []Choice
	home    map[string]Interface
	// present reports whether hardware is there, wherever its interface is; of software that it
	// may be.
	present func(Interface) bool
	pods    sightOfPods
	// used reports whether processes may be in the network namespace where an interface is, away from
	// home: the API server may be away for hours from a kubelet that was started without it.
	used func(Interface) bool
}

// sightOfPods are the ids that pods have; nil while that is not known.
type sightOfPods struct {
	held  map[string]bool
	asked time.Time
	// missedFor is the constant, or less in tests.
	missedFor time.Duration
}

// next is what the book says after a look; it leaves the book as it is.
func (b Book) next(s sight) Book {
	out := maps.Clone(b)
	offered := map[string]bool{}
	for _, c := range s.choices {
		id := c.Interface.ID
		r, known := b[id]
		if c.Refusal != "" {
			continue
		}
		offered[id] = true
		if !known || r.Phase == Free {
			home := c.Interface
			home.Link.Carrier = false // that comes and goes, and is looked at each time
			out[id] = Record{Resource: c.Rule.Resource, Home: home, Phase: Free}
		}
	}
	for id, r := range out {
		_, atHome := s.home[id]
		moved := r.Home.Hardware.PCI != "" && s.present(r.Home) && !atHome
		if r.Phase == Free && !offered[id] && !moved {
			delete(out, id) // nobody has it, and no rule is for it any more, or it is gone
			continue
		}
		if r = r.next(s, id); r.Phase == Returning && !atHome && !s.present(r.Home) {
			delete(out, id) // it was unplugged, and nobody has it any more
			continue
		}
		out[id] = r
	}
	return out
}

// next follows what pods have. What was asked before it was handed out is about its last pod.
func (r Record) next(s sight, id string) Record {
	patience := s.pods.missedFor
	if !r.Seen {
		patience = unseenFor
	}
	asked := s.pods.asked
	switch {
	case r.Phase != Handed || s.pods.held == nil || asked.Before(r.Since):
		return r
	case s.pods.held[id]:
		r.Seen, r.Missed = true, time.Time{}
		return r
	case r.Missed.IsZero():
		r.Missed = asked
	}
	if asked.Sub(r.Missed) >= patience && !s.used(r.Home) {
		r.Phase = Returning
	}
	return r
}

// health is why nobody should get an interface; empty when it is healthy.
func (r Record) health(home map[string]Interface, present func(Interface) bool) string {
	now, atHome := home[r.Home.ID]
	switch {
	case r.Phase == Returning && r.Problem != "":
		return "it is not as it was before a container had it: " + r.Problem
	case r.Phase == Returning:
		return "it is being brought back from a container"
	case atHome && now.Link.State.Up && !now.Link.Carrier:
		return "it has no carrier"
	case atHome:
		return ""
	case !present(r.Home):
		return "the hardware is gone"
	case r.Phase == Free:
		return "somebody has moved it into another network namespace"
	}
	return ""
}

// ids are in the order in which devices are listed.
func (b Book) ids() []string { return slices.Sorted(maps.Keys(b)) }
