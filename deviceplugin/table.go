package deviceplugin

import (
	"maps"
	"slices"
)

// table is what is known of every registration: facts that links reported. It has no lock and no
// clock; the loop of Plugins owns it.
//
// A resource is served by the newest of its records that is listing. While none is, it shows the
// devices of the newest one that had a list, all unhealthy. Records leave when their grace is over
// or when another record serves the resource.
type table struct {
	records []*record // in order of registration
}

// record is one registration.
type record struct {
	link    *link
	state   linkState
	options pluginOptions
	devices []Device
	listed  bool // devices came from a list, be it an empty one
	problem string
}

type linkState int

const (
	dialling linkState = iota
	listing
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
func (t *table) listed(l *link, options pluginOptions, devices []Device) (superseded []*link) {
	r := t.find(l)
	if r == nil || r.state == closed {
		return nil
	}
	r.devices, r.options = devices, options
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

// troubled says why a link has not come to its first list yet.
func (t *table) troubled(l *link, problem string) {
	if r := t.find(l); r != nil && r.state == dialling {
		r.problem = problem
	}
}

// closed says that a link has ended; its devices stay, unhealthy, unless another link serves them.
func (t *table) closed(l *link, problem string) (superseded []*link) {
	r := t.find(l)
	if r == nil {
		return nil
	}
	r.state, r.problem, r.devices = closed, problem, unhealthy(r.devices)
	if t.serving(l.resource) == nil {
		return nil
	}
	return t.drop(func(other *record) bool { return other == r })
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
	for name := range maps.Keys(problems) {
		if r := t.serving(name); r != nil {
			v.links[name] = r.link
			v.inventory.Resources[name] = Resource{
				Name: name, Devices: r.devices, Connected: true,
				Preferred: r.options.Preferred, PreStart: r.options.PreStart,
			}
			continue
		}
		r := t.shown(name)
		v.links[name] = r.link
		v.inventory.Resources[name] = Resource{
			Name: name, Devices: r.devices, Problem: problems[name],
			Preferred: r.options.Preferred, PreStart: r.options.PreStart,
		}
	}
	return v
}
