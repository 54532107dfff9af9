package line

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// A claim or a place names devices before their plugin was asked. At its turn a pod may choose among its own
// devices and those that later pods have so on the same NUMA nodes. A later pod gets as many others on these
// nodes for what is taken of its own, so that it has as much as before.

// exchange has what later pods have that gave devices to the pod decided on.
type exchange map[*Entry]allocation.Pod

// choose decides on the pod whose turn it is, and returns what others have then.
func (p *Pass) choose() (Verdict, exchange) {
	ledger := p.Ledger
	if p.hasAny && p.slots.holder(p, p.contested) == nil {
		if offered, more := p.offer(ledger); more {
			v := p.decide(offered)
			x, ok := p.exchanged(v.Held)
			if v.Outcome == decide.Admit && (ok || v.Case.Plan.Ask != nil) {
				return v, x
			}
		}
	}
	return p.decide(ledger), nil
}

// claimants lists the later pods whose devices may change: nothing of these is recorded or chosen.
func (p *Pass) claimants() (out []*Entry) {
	for _, o := range p.Order[p.at+1:] {
		if _, recorded := p.Stored.Pods[o.Pod.UID]; o.Has.Kind != record.Assigned && !recorded &&
			!o.State.Goes() && len(o.Chosen) == 0 {
			out = append(out, o)
		}
	}
	return out
}

// offer removes from the ledger what later pods can exchange with the pod.
func (p *Pass) offer(l allocation.Ledger) (offered allocation.Ledger, more bool) {
	for _, name := range p.contested {
		r, places := p.View.Inventory.Resources[name], map[topology.NodeSet]bool{}
		for id := range p.has[name] {
			if d, found := r.Find(id); found {
				places[d.Nodes] = true
			}
		}
		if len(places) == 0 {
			continue
		}
		for _, o := range p.claimants() {
			entry, _ := l.Get(o.Pod.UID)
			offers := sets.New[string]()
			for id := range entry.Assigned.Devices()[name] {
				if d, found := r.Find(id); found && places[d.Nodes] {
					offers.Insert(id)
				}
			}
			if offers.Len() > 0 {
				entry.Assigned = entry.Assigned.WithoutDevices(allocation.DeviceIDs{name: offers})
				l, more = l.With(o.Pod.UID, entry), true
			}
		}
	}
	return l, more
}

// exchanged returns what later pods have once the pod has what it gets; ok is false if the same
// nodes have too little for one of them.
func (p *Pass) exchanged(gets allocation.Pod) (x exchange, ok bool) {
	x = exchange{}
	takes := allocation.HoldingsOf(gets).Devices()
	for _, name := range p.contested {
		r, pool := p.View.Inventory.Resources[name], map[topology.NodeSet][]string{}
		taken := p.Ledger.Beside(p.request.In, []string{name}).Taken.Devices()[name]
		given := p.has[name].Difference(takes[name]).Difference(taken).UnsortedList()
		slices.SortFunc(given, devicemanager.CompareIDs)
		for _, id := range given {
			if d, found := r.Find(id); found && d.Offered() {
				pool[d.Nodes] = append(pool[d.Nodes], id)
			}
		}
		for _, o := range p.claimants() {
			swaps := map[string]string{}
			lost := allocation.HoldingsOf(o.Has.Pod).Devices()[name].Intersection(takes[name]).UnsortedList()
			slices.SortFunc(lost, devicemanager.CompareIDs)
			for _, id := range lost {
				d, found := r.Find(id)
				if !found || len(pool[d.Nodes]) == 0 {
					return nil, false
				}
				swaps[id], pool[d.Nodes] = pool[d.Nodes][0], pool[d.Nodes][1:]
			}
			if len(swaps) > 0 {
				claim, changed := x[o]
				if !changed {
					claim = o.Has.Pod
				}
				x[o] = exchangedIn(claim, r, swaps)
			}
		}
	}
	return x, true
}

// exchangedIn replaces the pod's devices of a resource by those that swaps maps them to.
func exchangedIn(p allocation.Pod, r devicemanager.Resource,
	swaps map[string]string) allocation.Pod {
	p.Containers = maps.Clone(p.Containers)
	for name, c := range p.Containers {
		p.Containers[name] = c.With(c.Devices().With(func(set *allocation.DeviceSet) {
			if set.Resource != r.Name {
				return
			}
			ids := slices.Clone(set.IDs)
			for at, id := range ids {
				if other, swapped := swaps[id]; swapped {
					ids[at] = other
				}
			}
			slices.SortFunc(ids, devicemanager.CompareIDs)
			*set = allocation.NewDeviceSet(r, ids)
		}))
	}
	return p
}
