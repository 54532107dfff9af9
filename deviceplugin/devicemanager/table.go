package devicemanager

import (
	"slices"
	"time"

	"github.com/numalet/numalet/deviceplugin/cordon"
)

// table holds the facts that links reported, one record per registration. It has no lock and no
// clock; the loop of Plugins owns it.
//
// The newest listing record of a resource serves it. While none is listing, the resource shows the
// devices of the newest record that had a list, all unhealthy. A record loses its devices when the
// grace of the capacity ends. It leaves when that of the resource ends or another record serves the
// resource.
//
//	dialling -> (empty) -> listing -> closed -> spent
//	                ^        |  ^
//	                |        v  |
//	                '------- lost: the stream ended, and the link tries again
//
// A stream that begins with an empty list has listed nothing until it lists a device or the grace
// for that ends: the devices of before stay. A record whose next list is too long keeps the one
// before.
type table struct {
	records  []*record // in order of registration
	declined declined
	// served has every resource that was ever in a view, in this run or an earlier one, and since when
	// it is not any more, as far as that is known.
	served map[string]time.Time
	// lists numbers the generations: a list of a plugin, a restored list and a change of cordons
	// each get a new number.
	lists   uint64
	cordons *cordon.Book
}

// record is one registration.
type record struct {
	link    *link
	state   linkState
	options Options
	list    list
	listed  bool // a list came from the plugin, even an empty one
	// generation is the number of the list among those of all plugins.
	generation uint64
	// last is the list whose devices count as allocatable while the record is shown but does not
	// serve.
	last    list
	problem string
	refusal string // why the last list was not read, while it is listing
	early   string // why the plugin could not be reached when it registered
	// first is the first list of the stream, while the record is empty.
	first firstList
	// gone is the time when the plugin was last there, for a record that had a list and does not
	// serve.
	gone time.Time
}

// firstList is an empty list with the options of its session.
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

// apply takes in a report; the links that it supersedes are to end.
func (t *table) apply(e event) (superseded []*link) {
	switch e.kind {
	case linkRegistered:
		return t.registered(e.link)
	case pluginRefused:
		t.declined.add(e.resource, e.problem)
		return nil
	case resourceRecordoned:
		t.recordoned(e.resource)
		return nil
	}
	r := t.find(e.link)
	if r == nil {
		return nil
	}
	switch e.kind {
	case linkEarly:
		r.early = e.problem
	case linkListed:
		return t.listed(r, e.options, e.list)
	case linkExplained:
		r.list.reasons = e.list.reasons
	case linkGraceOver:
		return t.graceOver(r)
	case linkTroubled:
		r.troubled(e.problem, e.there)
	case linkLost:
		r.lost(e.problem, e.there)
	case linkRefused:
		r.refused(e.problem)
	case linkFaded:
		r.faded()
	case linkClosed:
		return t.closed(r, e.problem, e.there)
	case linkSpent:
		t.spent(r)
	case linkExpired:
		t.expired(r)
	}
	return nil
}

// registered adds a link. It supersedes older links of the same socket that have no list yet, and
// takes over the complaints known of that socket.
func (t *table) registered(l *link) (superseded []*link) {
	for _, before := range t.records {
		if before.link.same(l) {
			l.behavior.complaints.Store(before.link.behavior.complaints.Load())
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

// restored adds a link that stands for a resource of an earlier run, with the devices of then;
// listed is false if these are not known.
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

// listed applies a list of devices.
func (t *table) listed(r *record, options Options, devices list) (superseded []*link) {
	switch {
	case r.state.over():
		return nil
	case r.state != listing && len(devices.devices) == 0:
		r.state, r.first = empty, firstList{options, devices}
		r.problem = "the plugin on " + r.link.name() + " has listed no devices yet"
		if wrong := devices.defects.String(); wrong != "" {
			r.problem += ": " + wrong
		}
		return nil
	}
	return t.serve(r, options, devices)
}

// graceOver ends the grace of a first list that was empty: from now on it counts.
func (t *table) graceOver(r *record) (superseded []*link) {
	if r.state != empty {
		return nil
	}
	return t.serve(r, r.first.options, r.first.list)
}

// serve applies a list that counts. With its first one the link takes over from older links of the
// same socket and from closed links of the same resource.
func (t *table) serve(r *record, options Options, devices list) (superseded []*link) {
	l := r.link
	t.lists++
	r.list, r.options, r.refusal, r.generation = devices, options, "", t.lists
	if r.state == listing {
		return nil
	}
	r.state, r.listed, r.problem, r.last = listing, true, "", list{}
	newer := false // true for records that registered after r
	return t.drop(func(other *record) bool {
		newer = newer || other == r
		return other != r && other.link.resource == l.resource &&
			(other.state.over() || !newer && other.link.same(l))
	})
}

// closed notes that a link has ended; its devices stay, unhealthy, unless another link serves them.
func (t *table) closed(r *record, problem string, there time.Time) (superseded []*link) {
	r.leave(closed, problem, there)
	if t.serving(r.link.resource) == nil {
		return nil
	}
	return t.drop(func(other *record) bool { return other == r })
}

// spent ends the grace of a closed link's devices. A link that had no list leaves.
func (t *table) spent(r *record) {
	if !r.listed {
		t.expired(r)
		return
	}
	r.state, r.list, r.last = spent, list{}, list{}
}

// expired ends the grace of a closed link's resource.
func (t *table) expired(r *record) {
	if _, known := t.served[r.link.resource]; known {
		t.served[r.link.resource] = r.gone
	}
	t.drop(func(other *record) bool { return other == r })
}

// recordoned makes readers look at the devices of a resource again.
func (t *table) recordoned(resource string) {
	for _, r := range t.records {
		if r.link.resource == resource {
			t.lists++
			r.generation = t.lists
		}
	}
}

// troubled notes why a link has no list; its plugin was last there at there.
func (r *record) troubled(problem string, there time.Time) {
	switch r.state {
	case closed, spent:
	case listing, empty: // with a list of an earlier stream
		r.leave(lost, problem, there)
	default:
		r.problem = problem
	}
}

// refused notes that a link's list is too long to be read. The list before stays.
func (r *record) refused(problem string) {
	switch r.state {
	case closed, spent:
	case listing:
		r.refusal = problem
	default:
		r.problem = problem
	}
}

// lost notes that a link's list has ended while the link tries to get another one.
func (r *record) lost(problem string, there time.Time) {
	if r.state == listing || r.state == empty {
		r.leave(lost, problem, there)
	}
}

// faded ends the grace of a link's allocatable devices.
func (r *record) faded() {
	if r.state != listing {
		r.last = list{}
	}
}

// leave takes a record out of service. A record without a list keeps none.
func (r *record) leave(to linkState, problem string, there time.Time) {
	if r.state == listing {
		r.last, r.list, r.gone = r.list, r.list.down(), there
	}
	r.state, r.problem, r.refusal = to, problem, ""
}

// find returns a link's record, nil if another link superseded it.
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

// serving returns the record that serves a resource, nil if none does.
func (t *table) serving(resource string) *record {
	for _, r := range slices.Backward(t.records) {
		if r.link.resource == resource && r.state == listing {
			return r
		}
	}
	return nil
}

// shown returns the record whose devices stand for a resource that no record serves.
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
