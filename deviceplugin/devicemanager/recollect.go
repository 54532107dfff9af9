package devicemanager

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
)

// touchPeriod is how often the presence of plugins is written to disk.
const touchPeriod = 10 * time.Second

// recollection holds what is remembered of a resource over restarts of the agent.
type recollection struct {
	resource string
	list     list
	gone     time.Time // zero: its plugin is there
	preStart bool      // it wants PreStartContainer
}

// says reports whether both have the same devices and the same gone.
func (r recollection) says(o recollection) bool {
	return r.resource == o.resource && r.gone.Equal(o.gone) && r.preStart == o.preStart &&
		r.list.says(o.list) && maps.Equal(r.list.addresses, o.list.addresses)
}

// mostGone bounds the resources that are remembered by name alone.
const mostGone = 1000

// longGone stands for an unknown time, in the past.
var longGone = time.Unix(0, 0)

// recollections returns one for each resource that had a list, and one without devices for each that
// has expired: a pod that asks for it still waits for its plugin. They are sorted by name; never nil.
func (t *table) recollections() []recollection {
	out, seen := []recollection{}, map[string]bool{}
	for _, r := range t.records {
		name := r.link.resource
		if seen[name] {
			continue
		}
		seen[name] = true
		if serving := t.serving(name); serving != nil {
			out = append(out, recollection{resource: name, list: serving.list,
				preStart: serving.options.PreStart})
		} else if shown := t.shown(name); shown.listed {
			out = append(out, recollection{name, shown.before(), shown.gone,
				shown.options.PreStart})
		}
	}
	out = append(out, t.expiredBut(seen)...)
	slices.SortFunc(out, func(a, b recollection) int { return cmp.Compare(a.resource, b.resource) })
	return out
}

// expiredBut returns the names of expired resources, at most mostGone, the last ones. It leaves out
// those that have a record.
func (t *table) expiredBut(here map[string]bool) (out []recollection) {
	for name, gone := range t.served {
		if gone.IsZero() {
			gone = longGone
		}
		if !here[name] {
			out = append(out, recollection{resource: name, gone: gone})
		}
	}
	slices.SortFunc(out, func(a, b recollection) int {
		return cmp.Or(b.gone.Compare(a.gone), cmp.Compare(a.resource, b.resource))
	})
	return out[:min(len(out), mostGone)]
}

// before returns the list of a record that does not serve, with the health that still counts.
func (r *record) before() list {
	if len(r.last.devices) > 0 {
		return r.last
	}
	return r.list
}

// remembered returns the form for the disk, which groups devices that are alike.
func (r recollection) remembered() recall.Resource {
	type kind struct {
		healthy, noNodes bool
		nodes            topology.NodeSet
	}
	sets, order := map[kind]*recall.Set{}, []*recall.Set{}
	for _, d := range r.list.devices {
		k := kind{d.Healthy, d.NoNodes, d.Nodes}
		if sets[k] == nil {
			sets[k] = &recall.Set{
				Healthy: d.Healthy, NoNodes: d.NoNodes, Nodes: recall.Nodes{NodeSet: d.Nodes},
			}
			order = append(order, sets[k])
		}
		sets[k].IDs = append(sets[k].IDs, d.ID)
		if len(r.list.addresses) > 0 {
			sets[k].PCI = append(sets[k].PCI, r.list.addresses[d.ID])
		}
	}
	out := recall.Resource{Name: r.resource, Gone: r.gone, PreStart: r.preStart}
	for _, set := range order {
		out.Sets = append(out.Sets, *set)
	}
	return out
}

// recalled returns a remembered list; of its nodes it keeps those that the machine has.
func recalled(r recall.Resource, machine topology.NodeSet) list {
	var devices []*Device
	var addresses map[string]string
	for _, set := range r.Sets {
		for i, id := range set.IDs {
			if i < len(set.PCI) && set.PCI[i] != "" {
				if addresses == nil {
					addresses = map[string]string{}
				}
				addresses[id] = set.PCI[i]
			}
			devices = append(devices, &Device{
				ID: id, Healthy: set.Healthy, NoNodes: set.NoNodes,
				Nodes: set.Nodes.Intersect(machine),
			})
		}
	}
	l, _ := arrange(devices, defects{})
	l.addresses = addresses
	return l
}

// known returns the link that stands for a resource of an earlier run.
func known(resource string, there time.Time) *link {
	return &link{connection: connection{resource: resource}, last: lastList{there: there}}
}

// restore makes the first table of a device manager. Remembered lists count for the rest of the
// graces.
func restore(cfg Config, now time.Time) *table {
	t := &table{cordons: cfg.Cordons, served: map[string]time.Time{}}
	names := map[string]bool{}
	for _, r := range cfg.Before.Lists.Left() {
		names[r.Name] = true
		away := now.Sub(r.Gone)
		if away >= cfg.Graces.Capacity+cfg.Graces.Resource {
			t.served[r.Name] = r.Gone
			continue
		}
		was := t.restored(known(r.Name, now.Add(-away)), recalled(r, cfg.NodeIDs), true)
		was.options.PreStart = r.PreStart
		if away >= cfg.Graces.Allocatable {
			was.faded()
		}
		if away >= cfg.Graces.Capacity {
			t.spent(was)
		}
	}
	for _, resource := range cfg.Before.Resources {
		if !names[resource] {
			t.restored(known(resource, now), list{}, false)
		}
	}
	return t
}

// memory writes the recollections to disk. The loop owns it.
type memory struct {
	book *recall.Book
	// written holds what this run wrote; nil: nothing yet, and the book is of an earlier run.
	written *files.Record[[]recollection]
	wrong   complaint.Complaint[string] // of the last write
}

func newMemory(book *recall.Book) memory {
	m := memory{book: book}
	if book != nil {
		m.written = recall.Record(book, func(all []recollection) []recall.Resource {
			out := make([]recall.Resource, len(all))
			for i, r := range all {
				out[i] = r.remembered()
			}
			return out
		})
	}
	return m
}

// keep writes what changed, sorted by name, except for resources that are held back. After a failure the next
// call tries again.
func (m *memory) keep(ctx context.Context, now []recollection, held map[string]bool) {
	if m.book == nil {
		return
	}
	written := m.written.Get()
	for _, was := range written {
		if !held[was.resource] {
			continue
		}
		at, found := slices.BinarySearchFunc(now, was.resource, func(r recollection, name string) int {
			return cmp.Compare(r.resource, name)
		})
		if found {
			now[at] = was
		}
	}
	if written == nil || !slices.EqualFunc(written, now, recollection.says) {
		m.report(ctx, m.written.Set(now))
	}
}

// touch records that the present plugins are still there.
func (m *memory) touch(ctx context.Context, now []recollection) {
	if m.book == nil {
		return
	}
	m.keep(ctx, now, nil)
	if !m.wrong.Lasts() {
		m.report(ctx, m.book.Touch(time.Now()))
	}
}

// report logs a new error once.
func (m *memory) report(ctx context.Context, err error) {
	if m.wrong.Begins(complaint.Of(err)) {
		klog.FromContext(ctx).Error(err, "Devices are not remembered over a restart; tried again",
			"every", touchPeriod)
	}
}
