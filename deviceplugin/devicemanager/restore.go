package devicemanager

import (
	"cmp"
	"time"

	"github.com/numalet/numalet/deviceplugin/recall"
)

// longGone stands for an unknown time, in the past.
var longGone = time.Unix(0, 0)

// remembered returns what there is to remember: each resource that had a list, and the name of each
// that has expired, since a pod that asks for it still waits for its plugin.
func (t *table) remembered() (out []recall.Resource) {
	seen := map[string]bool{}
	for _, r := range t.records {
		name := r.link.resource
		if seen[name] {
			continue
		}
		seen[name] = true
		r = cmp.Or(t.serving(name), t.shown(name))
		if !r.listed {
			continue
		}
		last := r.before()
		one := recall.Resource{Name: name, PreStart: r.options.PreStart,
			Devices: last.devices, Addresses: last.addresses}
		if r.state != listing {
			one.Gone = r.gone
		}
		out = append(out, one)
	}
	for name, gone := range t.served {
		if gone.IsZero() {
			gone = longGone
		}
		if !seen[name] {
			out = append(out, recall.Resource{Name: name, Gone: gone})
		}
	}
	return out
}

// before returns the list of a record with the health that still counts.
func (r *record) before() list {
	if len(r.last.devices) > 0 {
		return r.last
	}
	return r.list
}

// known returns the link that stands for a resource of an earlier run.
func known(resource string, there time.Time) *link {
	return &link{connection: connection{resource: resource}, last: lastList{there: there}}
}

// restore makes the first table of a device manager. Remembered lists count for the rest of the
// graces: those that are over end here, before anybody reads the table, the others in the links.
func restore(cfg Config, now time.Time) *table {
	t := &table{cordons: cfg.Cordons, served: map[string]time.Time{}}
	for _, r := range cfg.Before.Lists.Left(cfg.NodeIDs) {
		t.served[r.Name] = r.Gone
		l, _ := arrange(r.Devices, defects{})
		l.addresses = r.Addresses
		away := now.Sub(r.Gone)
		was := known(r.Name, now.Add(-away))
		t.restored(was, l, true).options.PreStart = r.PreStart
		for _, end := range cfg.Graces.ends() {
			if away >= end.after {
				t.apply(event{kind: end.kind, link: was})
			}
		}
	}
	for _, resource := range cfg.Before.Resources {
		if _, listed := t.served[resource]; !listed {
			t.restored(known(resource, now), list{}, false)
		}
	}
	return t
}
