package eni

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Phase says who has an offered interface.
type Phase string

// The phases; doc.go shows the transitions.
const (
	Free      Phase = "free"
	Handed    Phase = "handed"
	Returning Phase = "returning"
)

// Record is the state of one offered interface.
type Record struct {
	Resource string `json:"resource"`
	// Home is the interface as it was before it was handed out.
	Home  Interface `json:"home"`
	Phase Phase     `json:"phase"`
	// Pod is the UID of the pod that has it, if the agent tells it, or of the resource claim.
	Pod string `json:"pod,omitempty"`
	// Since is when it was handed out. Seen: the agent has known its pod since then.
	Since time.Time `json:"since,omitzero"`
	Seen  bool      `json:"seen,omitempty"`
	// Missed is the first of the latest answers in which the agent did not know its pod.
	Missed time.Time `json:"-"`
	// Prepared is when a container whose runtime moves it was last about to start.
	Prepared time.Time `json:"-"`
	// Problem says why it could not be brought back.
	Problem string `json:"-"`
}

const (
	// unseenFor is how long an interface stays handed out if the agent never knew its pod: the pod
	// was not admitted in the end.
	unseenFor = 2 * time.Minute
	// missedFor is how long it stays handed out after the agent stops knowing its pod: an agent
	// that has just started does not know its pods yet.
	missedFor = 30 * time.Second
	// movedWithin bounds the time in which a runtime moves an interface into a container.
	movedWithin = 10 * time.Second
)

// Records holds a record for each offered interface, by id.
type Records map[string]Record

// sight is the result of one look at the host and its pods.
type sight struct {
	choices []Choice
	home    map[string]Interface
	// present reports whether the hardware exists, wherever its interface is; for software, that it
	// may exist.
	present func(Interface) bool
	pods    sightOfPods
	// used reports whether processes may be in the network namespace where an interface is, away
	// from home. Without it, a kubelet that was started without an API server and knows no pods for
	// hours would cost them their interfaces.
	used func(Interface) bool
}

// sightOfPods holds the ids that pods have; nil: unknown.
type sightOfPods struct {
	held  map[string]bool
	asked time.Time
	// missedFor is the constant, or less in tests.
	missedFor time.Duration
}

// next returns the records after a look; it does not change r.
func (r Records) next(s sight) Records {
	out := maps.Clone(r)
	offered := map[string]bool{}
	for _, c := range s.choices {
		id := c.Interface.ID
		was, known := r[id]
		if c.Refusal != "" {
			continue
		}
		offered[id] = true
		if !known || was.Phase == Free {
			home := c.Interface
			home.Link.Carrier = false // the carrier comes and goes; each look reads it
			home.Hardware.Speed = cmp.Or(home.Hardware.Speed, was.Home.Hardware.Speed)
			out[id] = Record{Resource: c.Rule.Resource, Home: home, Phase: Free}
		}
	}
	for id, one := range out {
		_, atHome := s.home[id]
		moved := one.Home.Hardware.PCI != "" && s.present(one.Home) && !atHome
		if one.Phase == Free && !offered[id] && !moved {
			delete(out, id) // no pod has it, and it is gone or no rule matches it
			continue
		}
		if one = one.next(s, id); one.Phase == Returning && !atHome && !s.present(one.Home) {
			delete(out, id) // unplugged, and no pod has it
			continue
		}
		out[id] = one
	}
	return out
}

// next follows what pods have. An answer from before Since concerns the last pod.
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

// health says why no pod should get an interface; empty if it is healthy.
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

// with returns the records with another one for an interface; it does not change r.
func (r Records) with(id string, one Record) Records {
	out := maps.Clone(r)
	out[id] = one
	return out
}

// mayBe returns a test for interfaces at home that can be one that is nowhere. If a container with
// the host's network changed the MAC address of software's interface, its index is still the same.
// But an interface on record that came home meanwhile can have that index too.
func (r Records) mayBe(i Interface) func(Interface) bool {
	return func(f Interface) bool {
		if i.Hardware.PCI != "" || i.Link.Kind != f.Link.Kind || i.Link.Index != f.Link.Index {
			return false
		}
		for _, other := range r {
			if other.Home.same(f.Link) {
				return false
			}
		}
		return true
	}
}

// ids returns the order in which devices are listed.
func (r Records) ids() []string { return slices.Sorted(maps.Keys(r)) }
