package deviceplugin

import (
	"maps"
	"reflect"
	"slices"
)

// table is what is known of every registration: facts that links reported. It has no lock and no
// clock; the loop of Plugins owns it.
//
// A resource is served by the newest of its records that is listing. While none is, it shows the
// devices of the newest one that had a list, all unhealthy. Records leave when their grace is over
// or when another record serves the resource.
//
//	dialling -> listing -> closed
//	               |  ^
//	               v  |
//	               lost: the stream ended, and the link tries again
//
// A record whose next list is too long goes on listing the one before.
type table struct {
	records []*record // in order of registration
	// served has every resource that was ever in a view.
	served map[string]bool
	// lists counts those that plugins sent.
	lists uint64
}

// record is one registration.
type record struct {
	link    *link
	state   linkState
	options pluginOptions
	list    list
	listed  bool // list came from the plugin, be it an empty one
	// generation is the number of the list among those of all plugins.
	generation uint64
	// allocatable is what counts while the record is shown and not serving.
	allocatable int
	problem     string
	refusal     string // why the last list was not read, while it is listing
}

type linkState int

const (
	dialling linkState = iota
	listing
	lost
	closed
)

// pluginOptions is what GetDevicePluginOptions says.
type pluginOptions struct{ Preferred, PreStart bool }

// registered adds a link. Older ones of the same socket that have not come to a list yet are
// superseded.
func (t *table) registered(l *link) (superseded []*link) {
	superseded = t.drop(func(r *record) bool {
		return r.link.same(l) && r.state == dialling
	})
	r := &record{link: l, problem: "waiting for the plugin on " + l.name() + " to send its devices"}
	t.records = append(t.records, r)
	return superseded
}

// restored adds a link that stands for a resource from before the agent started.
func (t *table) restored(l *link) {
	t.records = append(t.records, &record{
		link: l, state: closed, problem: "no plugin has registered since the agent started",
	})
}

// listed takes a list of devices. With the first one the link takes over from older ones of the
// same socket and from closed ones of the same resource.
func (t *table) listed(l *link, options pluginOptions, devices list) (superseded []*link) {
	r := t.find(l)
	if r == nil || r.state == closed {
		return nil
	}
	t.lists++
	r.list, r.options, r.refusal, r.generation = devices, options, "", t.lists
	if r.state == listing {
		return nil
	}
	r.state, r.listed, r.problem = listing, true, ""
	newer := false // records that registered after l
	return t.drop(func(other *record) bool {
		newer = newer || other == r
		return other != r && other.link.resource == l.resource &&
			(other.state == closed || !newer && other.link.same(l))
	})
}

// troubled says why a link has no list.
func (t *table) troubled(l *link, problem string) {
	r := t.find(l)
	switch {
	case r == nil || r.state == closed:
	case r.state == listing: // with a list of an earlier stream
		r.leave(lost, problem)
	default:
		r.problem = problem
	}
}

// refused says that a link's list is too long to be read. What it listed before stays.
func (t *table) refused(l *link, problem string) {
	r := t.find(l)
	switch {
	case r == nil || r.state == closed:
	case r.state == listing:
		r.refusal = problem
	default:
		r.problem = problem
	}
}

// lost says that a link's list has ended and that the link tries to get another one.
func (t *table) lost(l *link, problem string) {
	if r := t.find(l); r != nil && r.state == listing {
		r.leave(lost, problem)
	}
}

// closed says that a link has ended; its devices stay, unhealthy, unless another link serves them.
func (t *table) closed(l *link, problem string) (superseded []*link) {
	r := t.find(l)
	if r == nil {
		return nil
	}
	r.leave(closed, problem)
	if t.serving(l.resource) == nil {
		return nil
	}
	return t.drop(func(other *record) bool { return other == r })
}

// leave takes a record out of service. A list that had nothing leaves nothing.
func (r *record) leave(to linkState, problem string) {
	if r.state == listing {
		r.allocatable, r.list = r.list.healthy, r.list.down()
	}
	r.state, r.problem, r.refusal = to, problem, ""
}

// faded ends the grace of a link's allocatable devices.
func (t *table) faded(l *link) {
	if r := t.find(l); r != nil && r.state != listing {
		r.allocatable = 0
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
		if r.listed {
			return r
		}
		if newest == nil {
			newest = r
		}
	}
	return newest
}

// view is what readers see: the snapshot, and for each resource whom to call.
type view struct {
	inventory Inventory
	links     map[string]*link
}

func (t *table) view(version uint64) *view {
	v := &view{
		inventory: Inventory{Version: version, Resources: map[string]Resource{}},
		links:     map[string]*link{},
	}
	problems := map[string]string{}
	for _, r := range t.records {
		problems[r.link.resource] = r.problem // the newest one's stays
	}
	for name, problem := range problems {
		r := t.serving(name)
		if r == nil {
			r = t.shown(name)
		}
		v.links[name] = r.link
		v.inventory.Resources[name] = r.resource(problem)
	}
	if t.served == nil {
		t.served = map[string]bool{}
	}
	for name := range v.inventory.Resources {
		t.served[name] = true
	}
	for name := range t.served {
		if _, here := v.inventory.Resources[name]; !here {
			v.inventory.Gone = append(v.inventory.Gone, name)
		}
	}
	slices.Sort(v.inventory.Gone)
	return v
}

// says reports whether both views show the same. Devices of lists that a plugin sent anew are
// others.
func (v *view) says(o *view) bool {
	return maps.Equal(v.links, o.links) && slices.Equal(v.inventory.Gone, o.inventory.Gone) &&
		maps.EqualFunc(v.inventory.Resources, o.inventory.Resources, Resource.shows)
}

func (r Resource) shows(o Resource) bool {
	r.Devices, o.Devices = nil, nil
	return reflect.DeepEqual(r, o)
}

// resource is what readers see of a record; problem is told unless it serves.
func (r *record) resource(problem string) Resource {
	out := Resource{
		Name: r.link.resource, Devices: r.list.devices, Generation: r.generation,
		Complaint: r.complaint(),
		Preferred: r.options.Preferred, PreStart: r.options.PreStart,
		Capacity: len(r.list.devices), Allocatable: r.allocatable, Problem: problem,
	}
	if r.state == listing {
		out.Connected, out.Problem, out.Allocatable = true, "", r.list.healthy
	}
	return out
}

// complaint is what is wrong with what a record sends.
func (r *record) complaint() string {
	wrong := r.list.defects.String()
	switch {
	case r.refusal == "":
		return wrong
	case wrong == "":
		return r.refusal
	}
	return r.refusal + "; " + wrong
}
