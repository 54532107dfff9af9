package line

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// Entry is a pod in admission, in the order of arrival.
type Entry struct {
	record.Record
	arrival int // its number in that order
}

// Pods holds the pods that admission knows, and the ledger of these and of pods that only the store
// knows. A record changes in Set only, so that the ledger follows. Others read the fields.
type Pods struct {
	Order  []*Entry         // of arrival
	Queued int              // how many of them are queued
	Stored allocation.State // as it is in the ledger
	Ledger allocation.Ledger

	arrivals int
	byUID    map[types.UID]*Entry
	bootID   string // the kernel's now
}

// Find returns nil for a pod that is not known.
func (p *Pods) Find(uid types.UID) *Entry { return p.byUID[uid] }

// add appends a pod that has come.
func (p *Pods) add(e *Entry) {
	p.arrivals++
	e.arrival = p.arrivals
	p.Order = append(p.Order, e)
	p.byUID[e.Pod.UID] = e
	p.count(e, 1)
	p.account(e.Pod.UID)
}

// remove forgets a pod; what is recorded of it stays in the ledgers.
func (p *Pods) remove(e *Entry) {
	p.Order = slices.DeleteFunc(p.Order, func(o *Entry) bool { return o == e })
	delete(p.byUID, e.Pod.UID)
	p.count(e, -1)
	p.account(e.Pod.UID)
}

// Set gives the pod its next record.
func (p *Pods) Set(e *Entry, r record.Record) {
	p.count(e, -1)
	e.Record = r
	p.count(e, 1)
	p.account(r.Pod.UID)
}

// count counts a queued pod in (1) or out (-1).
func (p *Pods) count(e *Entry, sign int) {
	if e.State == record.Queued {
		p.Queued += sign
	}
}

// follow takes over what was recorded since, and reports whether plugins have heard of releases.
func (p *Pods) follow(state allocation.State) (heard bool) {
	before := p.Stored
	p.Stored = state
	if state.Version == before.Version && before.Pods != nil {
		return false
	}
	for uid := range before.Pods {
		if _, kept := state.Pods[uid]; !kept {
			p.account(uid)
		}
	}
	for uid, held := range state.Pods {
		if b, known := before.Pods[uid]; !known || b.Version != held.Version {
			p.account(uid)
		}
	}
	return p.followReleases(before.PendingReleases, state.PendingReleases)
}

// followReleases takes over the releases that plugins have yet to hear of: until then no pod gets these
// devices.
func (p *Pods) followReleases(before, now []allocation.PendingRelease) (changed bool) {
	if reflect.DeepEqual(before, now) {
		return false
	}
	for _, o := range before {
		p.Ledger = p.Ledger.Without(o.Entry())
	}
	for _, o := range now {
		p.Ledger = p.Ledger.With(o.Entry(), allocation.Entry{Hold: allocation.Terminating, Assigned: o.Holdings()})
	}
	return true
}

// account brings the ledger up to date with a pod.
func (p *Pods) account(uid types.UID) {
	stored, recorded := p.Stored.Pods[uid]
	e := p.byUID[uid]
	switch {
	case e != nil:
		p.Ledger = p.Ledger.With(uid, e.Accounted(stored))
	case recorded:
		p.Ledger = p.Ledger.With(uid, allocation.Entry{
			Name: stored.Namespace + "/" + stored.Name,
			Hold: allocation.Terminating, Assigned: allocation.HoldingsOf(stored),
		})
	default:
		p.Ledger = p.Ledger.Without(uid)
	}
}

// withEntry returns another ledger with what the pod has.
func (p *Pods) withEntry(e *Entry, l allocation.Ledger) allocation.Ledger {
	entry, _ := p.Ledger.Get(e.Pod.UID)
	return l.With(e.Pod.UID, entry)
}

// own returns the pod's assignment, or else its recorded one. After a reboot the intent counts and the
// plugins' answers do not.
func (p *Pods) own(e *Entry) allocation.Pod {
	if e.Has.Kind == record.Assigned && e.IsReserved() {
		return e.Has.Pod
	}
	held := p.Stored.Pods[e.Pod.UID]
	if p.isVoid(held) {
		held.Containers = allocation.WithoutAnswers(held.Containers)
	}
	return held
}

// isVoid reports whether the plugins' answers were given under another boot.
func (p *Pods) isVoid(held allocation.Pod) bool {
	return !held.IsEmpty() && held.BootID != p.bootID
}

// IsBehind reports whether the pod still has a reason to stand in line. If an earlier pod whose slot it
// waits for is queued, that one goes first: a line moves up by one pod, and is not decided on as a whole.
func (p *Pods) IsBehind(e *Entry, v decide.View) bool {
	o := p.Find(e.After)
	if o == nil || !e.ForSlot {
		return o != nil && o.Undecided()
	}
	next := o.State == record.Queued && o.arrival < e.arrival
	return (o.Undecided() || next) && v.HasContested(o.Demand, func(resource string) bool {
		return e.Least[resource] > 0 && o.Holds(resource)
	})
}

// anyGoesNow reports whether some pod still holds something here, and nothing any more by the kubelet's
// rules.
func (p *Pods) anyGoesNow() bool {
	return slices.ContainsFunc(p.Order, func(e *Entry) bool { return e.GoesNow() })
}
