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

// Standing is how long a pod keeps what it has of the node.
type Standing int

// The standings.
const (
	Held        Standing = iota // the pod holds it, or is about to
	Claimed                     // the pod waits, and no later pod gets what it claims
	Terminating                 // the pod terminates, or only the store knows it
)

// Entry is what one pod has of the node.
type Entry struct {
	Standing Standing
	Assigned Taken
	// Requests count against what the node can allocate.
	Requests v1.ResourceList
	// Shares: some of its containers share CPUs.
	Shares bool
	// Ports are those that it takes of the host.
	Ports []podspec.HostPort
	// Rank says whether it makes way for a pod that is critical.
	Rank podspec.Rank
}

// Ledger is what pods have of the node. It is a value: putting a pod in gives another ledger, which
// shares with this one what they have in common, and costs little however many pods there are. The
// zero Ledger is empty.
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

// Others is what the pods beside one have.
type Others struct {
	Taken    Taken
	Requests [3]v1.ResourceList // by standing; never written to
	Sharing  bool
}

// With is the ledger in which the pod has that entry and no other.
func (l Ledger) With(uid types.UID, e Entry) Ledger {
	before, known := l.entries.get(uid)
	if known && before.equal(&e) {
		return l
	}
	l.entries = l.entries.with(uid, &e)
	return l.replace(before, &e)
}

// Without is the ledger without the pod.
func (l Ledger) Without(uid types.UID) Ledger {
	before, known := l.entries.get(uid)
	if !known {
		return l
	}
	l.entries = l.entries.without(uid)
	return l.replace(before, nil)
}

// replace makes the sums those with another entry of a pod; nil: it has none.
func (l Ledger) replace(before, after *Entry) Ledger {
	if before != nil {
		l.counted[before.Standing] = l.counted[before.Standing].change(before, -1)
	}
	if after != nil {
		l.counted[after.Standing] = l.counted[after.Standing].change(after, 1)
	}
	l.all = l.all.change(before.assigned(), after.assigned())
	l.lasting = l.lasting.change(before.lasting(), after.lasting())
	return l
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

// Resources lists those of which pods have devices.
func (l Ledger) Resources() []string {
	return slices.Collect(maps.Keys(find(l.all, deviceCounts(nil))))
}

// Requests is what the pods of a standing request together; it is never written to.
func (l Ledger) Requests(s Standing) v1.ResourceList { return l.counted[s].requests }

// Beside is what all pods but this one have, of devices those of the given resources; "" is no pod.
func (l Ledger) Beside(uid types.UID, resources []string) Others {
	return l.others(uid, resources, l.all, (*Entry).assigned, Held, Claimed, Terminating)
}

// BesideLasting is Beside once the pods that go have gone.
func (l Ledger) BesideLasting(uid types.UID, resources []string) Others {
	return l.others(uid, resources, l.lasting, (*Entry).lasting, Held, Claimed)
}

func (l Ledger) others(uid types.UID, resources []string, all sum, part func(*Entry) Taken,
	standings ...Standing) (out Others) {
	own, _ := l.entries.get(uid)
	out.Taken = all.change(part(own), nil).taken(resources)
	for _, s := range standings {
		c := l.counted[s]
		if own != nil && s == own.Standing {
			c = c.change(own, -1)
		}
		out.Requests[s] = c.requests
		out.Sharing = out.Sharing || c.sharers > 0
	}
	return out
}

// Firm is how many CPUs (resource "cpu") or devices the pod has that no pod which goes has as well.
func (l Ledger) Firm(uid types.UID, resource string) (n int) {
	e, _ := l.entries.get(uid)
	for _, c := range l.all {
		n += c.firm(l.lasting, e.lasting(), resource)
	}
	return n
}

// Conflict says for people what of the pod another one in the ledger has that only one can have; "":
// nothing.
func (l Ledger) Conflict(p Pod) string {
	own, _ := l.entries.get(p.UID)
	return l.all.change(own.assigned(), nil).conflict(TakenBy(p))
}

// equal costs little beside making the sums anew.
func (e *Entry) equal(o *Entry) bool {
	return e.Standing == o.Standing && e.Shares == o.Shares && e.Assigned.equal(o.Assigned) &&
		e.Rank == o.Rank && slices.Equal(e.Ports, o.Ports) &&
		maps.EqualFunc(e.Requests, o.Requests, func(a, b resource.Quantity) bool {
			return a.Cmp(b) == 0
		})
}

// assigned is what the entry, if any, has.
func (e *Entry) assigned() Taken {
	if e == nil {
		return nil
	}
	return e.Assigned
}

// lasting is what of it does not go.
func (e *Entry) lasting() Taken {
	if e == nil || e.Standing == Terminating {
		return nil
	}
	return e.Assigned
}

// change adds an entry, or takes it out.
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

// AddRequests is what both request together.
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
