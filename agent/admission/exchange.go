package admission

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// A claim names devices before their plugin was asked. When a pod has its turn, it is offered, beside
// what it claims itself, what those behind it claim on the same NUMA nodes; of what it takes they
// get as many in exchange on these nodes, so that each of their claims is as good as before.

// exchange is the claims of pods that give devices to the one that is decided on.
type exchange map[*entry]reservation

// choose is the decision on the pod whose turn it is in the pass, and what others exchange for it.
func (a *admitter) choose(e *entry, t *turn) (Decision, exchange) {
	ledger := t.line.ledger(a, t.at)
	if a.claimsContested(e) && t.line.holder(a, e) == nil {
		if offered, more := a.offer(e, ledger, t.at); more {
			d := a.decide(e, offered, t)
			x, ok := a.exchanged(e, d.Held, t.at)
			if d.Outcome == Admit && (ok || d.Case.Plan.Ask != nil) {
				return d, x
			}
		}
	}
	return a.decide(e, ledger, t), nil
}

// claimsContested reports whether the pod claims devices of plugins with preferences.
func (a *admitter) claimsContested(e *entry) bool {
	claimed := allocation.TakenBy(e.has.pod).Devices
	return e.claims() && slices.ContainsFunc(a.contested(e), func(name string) bool {
		return claimed[name].Len() > 0
	})
}

// claimants are the pods behind that place whose claims can be changed: nothing of theirs is
// recorded.
func (a *admitter) claimants(at int) (out []*entry) {
	for _, o := range a.pods.order[at+1:] {
		if _, recorded := a.pods.stored.Pods[o.pod.UID]; o.claims() && !recorded && !o.state.goes() {
			out = append(out, o)
		}
	}
	return out
}

// offer is the ledger without what those behind can exchange with the pod.
func (a *admitter) offer(e *entry, l allocation.Ledger, at int) (
	offered allocation.Ledger, more bool) {
	mine := allocation.TakenBy(e.has.pod).Devices
	for _, name := range a.contested(e) {
		r, places := a.view.inventory.Resources[name], map[topology.NodeSet]bool{}
		for id := range mine[name] {
			if d, found := r.Find(id); found {
				places[d.Nodes] = true
			}
		}
		if len(places) == 0 {
			continue
		}
		for _, o := range a.claimants(at) {
			entry, _ := l.Get(o.pod.UID)
			left := sets.New[string]()
			for id := range entry.Assigned.Devices[name] {
				if d, found := r.Find(id); !found || !places[d.Nodes] {
					left.Insert(id)
				}
			}
			if left.Len() < entry.Assigned.Devices[name].Len() {
				entry.Assigned.Devices = maps.Clone(entry.Assigned.Devices)
				entry.Assigned.Devices[name] = left
				l, more = l.With(o.pod.UID, entry), true
			}
		}
	}
	return l, more
}

// exchanged are the claims of those behind when the pod has what it gets; false if there is too
// little on the same nodes for one of them.
func (a *admitter) exchanged(e *entry, gets allocation.Pod, at int) (exchange, bool) {
	x := exchange{}
	had, takes := allocation.TakenBy(e.has.pod).Devices, allocation.TakenBy(gets).Devices
	for _, name := range a.contested(e) {
		r, pool := a.view.inventory.Resources[name], map[topology.NodeSet][]string{}
		taken := a.pods.ledger.Beside(e.pod.UID, []string{name}).Taken.Devices[name]
		given := had[name].Difference(takes[name]).Difference(taken).UnsortedList()
		slices.SortFunc(given, deviceplugin.CompareIDs)
		for _, id := range given {
			if d, found := r.Find(id); found && d.Offered() {
				pool[d.Nodes] = append(pool[d.Nodes], id)
			}
		}
		for _, o := range a.claimants(at) {
			swaps := map[string]string{}
			lost := allocation.TakenBy(o.has.pod).Devices[name].Intersection(takes[name]).UnsortedList()
			slices.SortFunc(lost, deviceplugin.CompareIDs)
			for _, id := range lost {
				d, found := r.Find(id)
				if !found || len(pool[d.Nodes]) == 0 {
					return nil, false
				}
				swaps[id], pool[d.Nodes] = pool[d.Nodes][0], pool[d.Nodes][1:]
			}
			if len(swaps) > 0 {
				has, changed := x[o]
				if !changed {
					has = o.has
				}
				x[o] = reservation{has.kind, exchangedIn(has.pod, r, swaps)}
			}
		}
	}
	return x, true
}

// exchangedIn replaces devices of a resource among what the pod has, each by the one in swaps.
func exchangedIn(p allocation.Pod, r deviceplugin.Resource,
	swaps map[string]string) allocation.Pod {
	p.Containers = maps.Clone(p.Containers)
	for name, c := range p.Containers {
		c.Devices = slices.Clone(c.Devices)
		for i, set := range c.Devices {
			if set.Resource != r.Name {
				continue
			}
			ids := slices.Clone(set.IDs)
			for at, id := range ids {
				if other, swapped := swaps[id]; swapped {
					ids[at] = other
				}
			}
			slices.SortFunc(ids, deviceplugin.CompareIDs)
			c.Devices[i] = allocation.NewDeviceSet(r, ids)
		}
		p.Containers[name] = c
	}
	return p
}

// take has the pods have what they get in exchange.
func (x exchange) take(p *pods) {
	for o, has := range x {
		p.move(o, o.state, has)
	}
}
