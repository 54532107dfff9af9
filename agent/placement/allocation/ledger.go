package allocation

import (
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology/podspec"
)

// Hold says how long a pod keeps what it has on the node.
type Hold int

// The kinds of Hold.
const (
	Held        Hold = iota // the pod holds it, or is about to
	Claimed                 // the pod waits, and no later pod gets what it claims
	Terminating             // the pod terminates, or only the store knows it
)

// Entry records what one pod has on the node.
type Entry struct {
	// Name is the pod's namespace and name; "": unknown.
	Name     string
	Hold     Hold
	Assigned Holdings
	// Requests count against what the node can allocate.
	Requests v1.ResourceList
	// Shares: some of its containers run in the shared pool.
	Shares bool
	// Ports are the host ports that it uses.
	Ports []podspec.HostPort
	// Rank says whether it makes way for a critical pod.
	Rank podspec.Rank
}

// Ledger records what all pods have on the node. It is an immutable value: With and Without return
// another ledger, which shares memory with this one, at a cost that does not depend on the number
// of pods. The zero Ledger is empty.
//
// Two pods can have the same thing, one that terminates and one that claims it. It is taken until
// neither has an entry.
type Ledger struct {
	entries shards[types.UID, *Entry]
	// all sums what all pods have, lasting what pods have that do not terminate.
	all, lasting sum
	counted      [3]counted // by hold
}

// counted sums, for pods of one hold, the resources that are only counted.
type counted struct {
	requests      v1.ResourceList // never written to
	pods, sharers int
}

// Others sums what all pods except one have.
type Others struct {
	Taken    Holdings
	Requests [3]v1.ResourceList // by hold; never written to
	Sharing  bool
}

// With returns the ledger with this entry of the pod.
func (l Ledger) With(uid types.UID, e Entry) Ledger {
	before, known := l.entries.get(uid)
	if known && before.equal(&e) {
		return l
	}
	l.entries = l.entries.with(uid, &e)
	return l.replace(before, &e)
}

// Without returns the ledger without the pod.
func (l Ledger) Without(uid types.UID) Ledger {
	before, known := l.entries.get(uid)
	if !known {
		return l
	}
	l.entries = l.entries.without(uid)
	return l.replace(before, nil)
}

// replace updates the sums for a pod's changed entry; nil: it has none.
func (l Ledger) replace(before, after *Entry) Ledger {
	if before != nil {
		l.counted[before.Hold] = l.counted[before.Hold].change(before, -1)
	}
	if after != nil {
		l.counted[after.Hold] = l.counted[after.Hold].change(after, 1)
	}
	l.all = l.all.change(before.assigned(), after.assigned())
	l.lasting = l.lasting.change(before.lasting(), after.lasting())
	return l
}

// Get returns the pod's entry.
func (l Ledger) Get(uid types.UID) (e Entry, known bool) {
	found, known := l.entries.get(uid)
	if known {
		e = *found
	}
	return e, known
}

// All yields every entry, in no order.
func (l Ledger) All() iter.Seq2[types.UID, *Entry] { return l.entries.all() }

// Pods returns the number of a hold.
func (l Ledger) Pods(s Hold) int { return l.counted[s].pods }

// Resources lists the device resources that pods hold devices of.
func (l Ledger) Resources() []string {
	return slices.Collect(maps.Keys(find(l.all, deviceCounts(nil))))
}

// Requests returns what the pods of a hold request together. Never write to it.
func (l Ledger) Requests(s Hold) v1.ResourceList { return l.counted[s].requests }

// Beside returns what all pods but this one have ("": all pods), but only the devices of the given
// resources.
func (l Ledger) Beside(uid types.UID, resources []string) Others {
	return l.others(uid, resources, l.all, (*Entry).assigned, Held, Claimed, Terminating)
}

// BesideLasting is Beside without terminating pods.
func (l Ledger) BesideLasting(uid types.UID, resources []string) Others {
	return l.others(uid, resources, l.lasting, (*Entry).lasting, Held, Claimed)
}

func (l Ledger) others(uid types.UID, resources []string, all sum, part func(*Entry) Holdings,
	holds ...Hold) (out Others) {
	own, _ := l.entries.get(uid)
	out.Taken = all.change(part(own), nil).taken(resources)
	for _, s := range holds {
		c := l.counted[s]
		if own != nil && s == own.Hold {
			c = c.change(own, -1)
		}
		out.Requests[s] = c.requests
		out.Sharing = out.Sharing || c.sharers > 0
	}
	return out
}

// Lasting counts how much of a resource ("cpu", or a device resource) the pod has that no terminating
// pod still has.
func (l Ledger) Lasting(uid types.UID, resource string) (n int) {
	e, _ := l.entries.get(uid)
	for _, c := range l.all {
		n += c.lasting(l.lasting, e.lasting(), resource)
	}
	return n
}

// Conflict describes what the pod holds that another pod in the ledger has and that only one can
// have; "": nothing.
func (l Ledger) Conflict(p Pod) string {
	own, _ := l.entries.get(p.UID)
	return l.all.change(own.assigned(), nil).conflict(HoldingsOf(p))
}

// equal is cheaper than updating the sums.
func (e *Entry) equal(o *Entry) bool {
	return e.Name == o.Name && e.Hold == o.Hold && e.Shares == o.Shares &&
		e.Assigned.equal(o.Assigned) && e.Rank == o.Rank && slices.Equal(e.Ports, o.Ports) &&
		maps.EqualFunc(e.Requests, o.Requests, func(a, b resource.Quantity) bool {
			return a.Cmp(b) == 0
		})
}

// assigned returns what the entry has; the entry may be nil.
func (e *Entry) assigned() Holdings {
	if e == nil {
		return nil
	}
	return e.Assigned
}

// lasting returns what the entry has if its pod does not terminate.
func (e *Entry) lasting() Holdings {
	if e == nil || e.Hold == Terminating {
		return nil
	}
	return e.Assigned
}

// change adds an entry (sign 1) or removes it (sign -1).
func (c counted) change(e *Entry, sign int) counted {
	c.pods += sign
	if e.Shares {
		c.sharers += sign
	}
	if sign > 0 {
		c.requests = AddRequests(c.requests, e.Requests)
		return c
	}
	c.requests = maps.Clone(c.requests)
	for name, quantity := range e.Requests {
		left := c.requests[name].DeepCopy()
		left.Sub(quantity)
		c.requests[name] = left
	}
	return c
}

// AddRequests returns the sum of both.
func AddRequests(a, b v1.ResourceList) v1.ResourceList {
	out := make(v1.ResourceList, len(a)+len(b))
	for _, list := range []v1.ResourceList{a, b} {
		for name, quantity := range list {
			total := out[name].DeepCopy()
			total.Add(quantity)
			out[name] = total
		}
	}
	return out
}
