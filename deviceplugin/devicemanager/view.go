package devicemanager

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/numalet/numalet/deviceplugin/cordon"
)

// view is the state for readers: the snapshot, and for each resource the link to call.
type view struct {
	inventory Inventory
	links     map[string]*link
}

func (t *table) view(version uint64) *view {
	v := &view{
		inventory: Inventory{Version: version, Resources: map[string]Resource{}},
		links:     map[string]*link{},
	}
	newest := map[string]*record{}
	for _, r := range t.records {
		newest[r.link.resource] = r
	}
	for name, last := range newest {
		r := cmp.Or(t.serving(name), t.shown(name))
		v.links[name] = r.link
		v.inventory.Resources[name] = r.resource(last, t.cordons.Of(name))
	}
	v.inventory.Refused = t.declined.byResource()
	if t.served == nil {
		t.served = map[string]time.Time{}
	}
	for name := range v.inventory.Resources {
		if _, known := t.served[name]; !known {
			t.served[name] = time.Time{}
		}
	}
	for name := range t.served {
		if _, here := v.inventory.Resources[name]; !here {
			v.inventory.Gone = append(v.inventory.Gone, name)
		}
	}
	slices.Sort(v.inventory.Gone)
	return v
}

// says reports whether both views show the same. It compares generations instead of devices.
func (v *view) says(o *view) bool {
	return maps.Equal(v.links, o.links) && slices.Equal(v.inventory.Gone, o.inventory.Gone) &&
		maps.Equal(v.inventory.Refused, o.inventory.Refused) &&
		maps.EqualFunc(v.inventory.Resources, o.inventory.Resources, Resource.shows)
}

func (r Resource) shows(o Resource) bool {
	r.Devices, o.Devices, r.Addresses, o.Addresses = nil, nil, nil, nil
	return reflect.DeepEqual(r, o)
}

// resource returns what readers see of a record. Unless it serves, the problem is that of newest,
// the resource's newest record. cordons are those of the resource, by id.
func (r *record) resource(newest *record, cordons map[string]cordon.Cordon) Resource {
	devices, _ := marked(r.list, cordons)
	_, allocatable := marked(r.last, cordons)
	out := Resource{
		Name: r.link.resource, Devices: devices, Addresses: r.list.addresses,
		Generation: r.generation,
		Complaint:  r.complaint(), Early: newest.early,
		Options:  r.options,
		Capacity: len(r.list.devices), Allocatable: allocatable, Problem: newest.problem,
		Arriving: newest.state == dialling || newest.state == empty,
	}
	if !r.listed {
		out.Options.Released = ReleasedUnknown
	}
	if r.state == listing {
		_, out.Allocatable = marked(r.list, cordons)
		out.Connected, out.Problem, out.Arriving = true, "", false
		out.Reasons = r.list.reasons
	}
	return out
}

// complaint says what is wrong with the lists of a record.
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
