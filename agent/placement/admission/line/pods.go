package line

import (
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
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
	// ClaimsOf returns a pod's resource claims as they are known now.
	ClaimsOf func(*v1.Pod) allocation.PodClaims

	arrivals int
	byUID    map[types.UID]*Entry
	bootID   string
}

// New returns no pods yet, under this boot of the kernel.
func New(bootID string, claims func(*v1.Pod) allocation.PodClaims) *Pods {
	return &Pods{byUID: map[types.UID]*Entry{}, bootID: bootID, ClaimsOf: claims}
}

// Find returns nil for a pod that is not known.
func (p *Pods) Find(uid types.UID) *Entry { return p.byUID[uid] }

// Add appends a pod that has come.
func (p *Pods) Add(r record.Record) *Entry {
	p.arrivals++
	e := &Entry{Record: r, arrival: p.arrivals}
	p.Order = append(p.Order, e)
	p.byUID[e.Pod.UID] = e
	p.count(e, 1)
	p.account(e.Pod.UID)
	return e
}

// Remove forgets a pod; what is recorded of it stays in the ledgers.
func (p *Pods) Remove(e *Entry) {
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

// Follow takes over what was recorded since, and reports whether plugins have heard of releases.
func (p *Pods) Follow(state allocation.State) (heard bool) {
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
	if p.IsVoid(held) {
		held.Containers = allocation.WithoutAnswers(held.Containers)
	}
	return held
}

// IsVoid reports whether the plugins' answers were given under another boot.
func (p *Pods) IsVoid(held allocation.Pod) bool {
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

// Request returns what the pod asks for.
func (p *Pods) Request(e *Entry) decide.Request {
	r := decide.Request{
		Pod: e.Pod, In: e.Pod.UID, Own: p.own(e), Runs: e.Runs, ResourceClaims: p.ClaimsOf(e.Pod),
		Advice: e.Preferences.Advice, Silent: e.Preferences.Silent, HasPreempted: e.Tries.HasPreempted,
	}
	if e.Claims() {
		r.Claimed, r.Claim = true, e.Has.Pod
	}
	return r
}

// anyGoesNow reports whether some pod still holds something here, and nothing any more by the kubelet's
// rules.
func (p *Pods) anyGoesNow() bool {
	return slices.ContainsFunc(p.Order, func(e *Entry) bool { return e.GoesNow() })
}
