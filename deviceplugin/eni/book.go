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
	// Since is when it was handed out. Seen: its pod was known to the agent since.
	Since time.Time `json:"since,omitzero"`
	Seen  bool      `json:"seen,omitempty"`
	// Problem says why it could not be brought back.
	Problem string `json:"-"`
}

// unseenFor is how long an interface stays handed out whose pod the agent never told of: it was not
// admitted in the end.
const unseenFor = 2 * time.Minute

// Book has a record for each interface that is offered, by id.
type Book map[string]Record

// sight is what is seen of the host and its pods at one time.
type sight struct {
	choices []Choice
	home    map[string]Interface
	// present reports whether hardware is there, wherever its interface is; of software that it
	// may be.
	present func(Interface) bool
	// held are the ids that pods have; nil while that is not known.
	held map[string]bool
	now  time.Time
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
		if r = r.next(s.held, s.now, id); r.Phase == Returning && !atHome && !s.present(r.Home) {
			delete(out, id) // it was unplugged, and nobody has it any more
			continue
		}
		out[id] = r
	}
	return out
}

// next follows what pods have.
func (r Record) next(held map[string]bool, now time.Time, id string) Record {
	switch {
	case r.Phase != Handed || held == nil:
	case held[id]:
		r.Seen = true
	case r.Seen || now.Sub(r.Since) > unseenFor:
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
