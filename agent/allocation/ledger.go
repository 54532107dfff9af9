package allocation

import (
	"iter"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"
)

// Standing is how long a pod keeps what it has of the node.
type Standing int

// The standings.
const (
	Stays  Standing = iota // it holds it, or is about to
	Claims                 // it waits, and nobody who comes later gets what it claims
	Goes                   // it terminates, or only the store knows it: it may
)

// Entry is what one pod has of the node.
type Entry struct {
	Standing Standing
	Assigned Taken
	// Requests count against what the node can allocate.
	Requests v1.ResourceList
	// Shares: some of its containers share CPUs.
	Shares bool
}

// equal costs little beside making the sums anew.
func (e *Entry) equal(o *Entry) bool {
	return e.Standing == o.Standing && e.Shares == o.Shares && e.Assigned.equal(o.Assigned) &&
		maps.EqualFunc(e.Requests, o.Requests, func(a, b resource.Quantity) bool {
			return a.Cmp(b) == 0
		})
}

// Ledger is what pods have of the node. It is a value: putting a pod in gives another ledger, which
// shares with this one what they have in common. The zero Ledger is empty.
//
// Several pods may have the same thing, one that goes and one that claims it: it is taken until the
// last of them is out.
type Ledger struct {
	entries shards[types.UID, *Entry]
	// all is what all pods have, lasting what those have that do not go.
	all, lasting sum
	counted      [3]counted // by standing
}

// counted is what pods of one standing have that is only counted.
type counted struct {
	requests      v1.ResourceList // never written to
	pods, sharers int
}

// Others is what the pods beside one have. What it refers to is shared, and never written to.
type Others struct {
	Taken    Taken
	Requests [3]v1.ResourceList // by standing
	Sharing  bool
}

// With is the ledger in which the pod has that entry and no other.
func (l Ledger) With(uid types.UID, e Entry) Ledger {
	before, known := l.entries.get(uid)
	if known && before.equal(&e) {
		return l
	}
	if !known {
		before = &Entry{Standing: Goes}
	} else {
		l.counted[before.Standing] = l.counted[before.Standing].change(before, -1)
	}
	l.entries = l.entries.with(uid, &e)
	l.counted[e.Standing] = l.counted[e.Standing].change(&e, 1)
	l.all = l.all.change(before.Assigned, e.Assigned)
	l.lasting = l.lasting.change(before.lasting(), e.lasting())
	return l
}

// Without is the ledger without the pod.
func (l Ledger) Without(uid types.UID) Ledger {
	e, known := l.entries.get(uid)
	if !known {
		return l
	}
	l.entries = l.entries.without(uid)
	l.counted[e.Standing] = l.counted[e.Standing].change(e, -1)
	l.all = l.all.change(e.Assigned, Taken{})
	l.lasting = l.lasting.change(e.lasting(), Taken{})
	return l
}

// lasting is what of the entry does not go.
func (e *Entry) lasting() Taken {
	if e.Standing == Goes {
		return Taken{}
	}
	return e.Assigned
}

// Get is the pod's entry.
func (l Ledger) Get(uid types.UID) (e Entry, known bool) {
	found, known := l.entries.get(uid)
	if known {
		e = *found
	}
	return e, known
}

// All has every entry, in no order.
func (l Ledger) All() iter.Seq2[types.UID, *Entry] { return l.entries.all() }

// Pods counts those of a standing.
func (l Ledger) Pods(s Standing) int { return l.counted[s].pods }

// Requests is what the pods of a standing request together. It is shared, and never written to.
func (l Ledger) Requests(s Standing) v1.ResourceList { return l.counted[s].requests }

// Beside is what all pods but this one have; "" is none.
func (l Ledger) Beside(uid types.UID) Others {
	e, known := l.Get(uid)
	out := Others{Taken: l.all.except(e.Assigned)}
	out.count(l, e, known, Stays, Claims, Goes)
	return out
}

// BesideLasting is what all pods but this one have once those that go have gone.
func (l Ledger) BesideLasting(uid types.UID) Others {
	e, known := l.Get(uid)
	out := Others{Taken: l.lasting.except(e.lasting())}
	out.count(l, e, known, Stays, Claims)
	return out
}

func (o *Others) count(l Ledger, own Entry, known bool, standings ...Standing) {
	for _, s := range standings {
		c := l.counted[s]
		if known && s == own.Standing {
			c = c.change(&own, -1)
		}
		o.Requests[s] = c.requests
		o.Sharing = o.Sharing || c.sharers > 0
	}
}

// Firm is the CPUs and devices that the pod has and no pod which goes has as well.
func (l Ledger) Firm(uid types.UID) Taken {
	e, known := l.Get(uid)
	if !known || e.Standing == Goes {
		return Taken{}
	}
	out := Taken{Devices: map[string]sets.Set[string]{}}
	var cpus []int
	for _, id := range e.Assigned.CPUs.UnsortedList() {
		if l.all.cpus.count(id) == l.lasting.cpus.count(id) {
			cpus = append(cpus, id)
		}
	}
	out.CPUs = cpuset.New(cpus...)
	for resource, ids := range e.Assigned.Devices {
		out.Devices[resource] = sets.New[string]()
		for id := range ids {
			if l.all.devices[resource].count(id) == l.lasting.devices[resource].count(id) {
				out.Devices[resource].Insert(id)
			}
		}
	}
	return out
}

// Compact is the same ledger without what was worked out of it, for one that is kept for long.
func (l Ledger) Compact() Ledger {
	l.all, l.lasting = l.all.compact(), l.lasting.compact()
	return l
}

// change adds an entry, or takes it out.
func (c counted) change(e *Entry, sign int) counted {
	c.pods += sign
	if e.Shares {
		c.sharers += sign
	}
	if len(e.Requests) == 0 {
		return c
	}
	requests := make(v1.ResourceList, len(c.requests)+len(e.Requests))
	maps.Copy(requests, c.requests)
	for name, quantity := range e.Requests {
		total := requests[name].DeepCopy()
		if sign > 0 {
			total.Add(quantity)
		} else {
			total.Sub(quantity)
		}
		requests[name] = total
	}
	c.requests = requests
	return c
}
