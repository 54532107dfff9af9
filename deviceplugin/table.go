package deviceplugin

import (
	"slices"
	"time"

	"github.com/numalet/numalet/deviceplugin/cordon"
)

// table is what is known of every registration: facts that links reported. It has no lock and no
// clock; the loop of Plugins owns it.
//
// A resource is served by the newest of its records that is listing. While none is, it shows the
// devices of the newest one that had a list, all unhealthy. Records have no devices any more when
// the grace of the capacity is over, and leave when that of the resource is, or when another record
// serves the resource.
//
//	dialling -> (empty) -> listing -> closed -> spent
//	                ^        |  ^
//	                |        v  |
//	                '------- lost: the stream ended, and the link tries again
//
// A stream that begins with an empty list has listed nothing yet, until it says more or the grace
// for that is over: what was there before stays. A record whose next list is too long goes on
// listing the one before.
type table struct {
	records  []*record // in order of registration
	declined declined
	// served has every resource that was ever in a view.
	served map[string]bool
	// lists counts those that plugins sent, and those that were cordoned otherwise than before.
	lists   uint64
	cordons *cordon.Book
}

// record is one registration.
type record struct {
	link    *link
	state   linkState
	options Options
	list    list
	listed  bool // list came from the plugin, be it an empty one
	// generation is the number of the list among those of all plugins.
	generation uint64
	// last is the list whose devices count as allocatable while the record is shown and not serving.
	last    list
	problem string
	refusal string // why the last list was not read, while it is listing
	early   string // why the plugin could not be reached when it registered
	// first is what the stream began with, while the record is empty.
	first firstList
	// gone is when the plugin was last there, of a record that had a list and does not serve.
	gone time.Time
}

// firstList is an empty list and what came with it.
type firstList struct {
	options Options
	list    list
}

type linkState int

const (
	dialling linkState = iota
	empty
	listing
	lost
	closed
	spent
)

// over reports whether the link has ended.
func (s linkState) over() bool { return s == closed || s == spent }

// registered adds a link. Older ones of the same socket that have not come to a list yet are
// superseded. What they are known to do is known of it.
func (t *table) registered(l *link) (superseded []*link) {
	for _, before := range t.records {
		if before.link.same(l) {
			l.conduct.manners.Store(before.link.conduct.manners.Load())
		}
	}
	superseded = t.drop(func(r *record) bool {
		return r.link.same(l) && !r.listed && (r.state == dialling || r.state == empty)
	})
	t.declined.drop(l.resource)
	r := &record{link: l, problem: "waiting for the plugin on " + l.name() + " to send its devices"}
	t.records = append(t.records, r)
	return superseded
}

// restored adds a link that stands for a resource from before the agent started, with the devices
// that were listed then; listed is false if it is not known which these were.
func (t *table) restored(l *link, was list, listed bool) *record {
	t.lists++
	r := &record{
		link: l, state: closed, problem: "no plugin has registered since the agent started",
		options: Options{Released: ReleasedUnknown}, list: was.down(), last: was, listed: listed,
		generation: t.lists, gone: l.last.there,
	}
	t.records = append(t.records, r)
	return r
}

// listed takes a list of devices.
func (t *table) listed(l *link, options Options, devices list) (superseded []*link) {
	r := t.find(l)
	switch {
	case r == nil || r.state.over():
		return nil
	case r.state != listing && len(devices.devices) == 0:
		r.state, r.first = empty, firstList{options, devices}
		r.problem = "the plugin on " + l.name() + " has listed no devices yet"
		if wrong := devices.defects.String(); wrong != "" {
			r.problem += ": " + wrong
		}
		return nil
	}
	return t.serve(r, options, devices)
}

// explained takes why devices of the last list are unhealthy.
func (t *table) explained(l *link, reasons Reasons) {
	if r := t.find(l); r != nil {
		r.list.reasons = reasons
	}
}

// settled ends the grace of a list that was empty from the start: it means what it says.
func (t *table) settled(l *link) (superseded []*link) {
	r := t.find(l)
	if r == nil || r.state != empty {
		return nil
	}
	return t.serve(r, r.first.options, r.first.list)
}

// serve takes a list that counts. With the first one the link takes over from older ones of the
// same socket and from closed ones of the same resource.
func (t *table) serve(r *record, options Options, devices list) (superseded []*link) {
	l := r.link
	t.lists++
	r.list, r.options, r.refusal, r.generation = devices, options, "", t.lists
	if r.state == listing {
		return nil
	}
	r.state, r.listed, r.problem, r.last = listing, true, "", list{}
	newer := false // records that registered after l
	return t.drop(func(other *record) bool {
		newer = newer || other == r
		return other != r && other.link.resource == l.resource &&
			(other.state.over() || !newer && other.link.same(l))
	})
}

// troubled says why a link has no list, whose plugin was last there at a time.
func (t *table) troubled(l *link, problem string, there time.Time) {
	r := t.find(l)
	switch {
	case r == nil || r.state.over():
	case r.state == listing || r.state == empty: // with a list of an earlier stream
		r.leave(lost, problem, there)
	default:
		r.problem = problem
	}
}

// refused says that a link's list is too long to be read. What it listed before stays.
func (t *table) refused(l *link, problem string) {
	r := t.find(l)
	switch {
	case r == nil || r.state.over():
	case r.state == listing:
		r.refusal = problem
	default:
		r.problem = problem
	}
}

// lost says that a link's list has ended and that the link tries to get another one.
func (t *table) lost(l *link, problem string, there time.Time) {
	if r := t.find(l); r != nil && (r.state == listing || r.state == empty) {
		r.leave(lost, problem, there)
	}
}

// early says that a link's plugin could not be reached yet when it had registered.
func (t *table) early(l *link, why string) {
	if r := t.find(l); r != nil {
		r.early = why
	}
}

// closed says that a link has ended; its devices stay, unhealthy, unless another link serves them.
func (t *table) closed(l *link, problem string, there time.Time) (superseded []*link) {
	r := t.find(l)
	if r == nil {
		return nil
	}
	r.leave(closed, problem, there)
	if t.serving(l.resource) == nil {
		return nil
	}
	return t.drop(func(other *record) bool { return other == r })
}

// leave takes a record out of service. A list that had nothing leaves nothing.
func (r *record) leave(to linkState, problem string, there time.Time) {
	if r.state == listing {
		r.last, r.list, r.gone = r.list, r.list.down(), there
	}
	r.state, r.problem, r.refusal = to, problem, ""
}

// faded ends the grace of a link's allocatable devices.
func (t *table) faded(l *link) {
	if r := t.find(l); r != nil && r.state != listing {
		r.last = list{}
	}
}

// recordoned has readers look at the devices of a resource again.
func (t *table) recordoned(resource string) {
	for _, r := range t.records {
		if r.link.resource == resource {
			t.lists++
			r.generation = t.lists
		}
	}
}

// spent ends the grace of a closed link's devices. One that had no list leaves.
func (t *table) spent(l *link) {
	switch r := t.find(l); {
	case r == nil:
	case r.listed:
		r.state, r.list, r.last = spent, list{}, list{}
	default:
		t.expired(l)
	}
}

// expired ends the grace of a closed link.
func (t *table) expired(l *link) {
	t.drop(func(r *record) bool { return r.link == l })
}

func (t *table) find(l *link) *record {
	for _, r := range t.records {
		if r.link == l {
			return r
		}
	}
	return nil
}

func (t *table) drop(which func(*record) bool) (dropped []*link) {
	t.records = slices.DeleteFunc(t.records, func(r *record) bool {
		if !which(r) {
			return false
		}
		dropped = append(dropped, r.link)
		return true
	})
	return dropped
}

// serving is the record that serves a resource, nil when none does.
func (t *table) serving(resource string) *record {
	for _, r := range slices.Backward(t.records) {
		if r.link.resource == resource && r.state == listing {
			return r
		}
	}
	return nil
}

// shown is the record whose devices stand for a resource that nobody serves.
func (t *table) shown(resource string) *record {
	var newest *record
	for _, r := range slices.Backward(t.records) {
		if r.link.resource != resource {
			continue
		}
		if r.listed && r.state != spent {
			return r
		}
		if newest == nil || r.listed && !newest.listed {
			newest = r
		}
	}
	return newest
}
