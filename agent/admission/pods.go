package admission

import (
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/admission/record"
	"github.com/numalet/numalet/agent/allocation"
)

// entry is a pod in admission, in the order of arrival.
type entry struct {
	record.Record
	arrival int              // its number in that order
	guess   allocation.Taken // what it has while it guesses
}

// pods holds the pods that admission knows, and the ledgers of these and of pods that only the store
// knows. A record changes in set only, so that the ledgers follow.
type pods struct {
	order    []*entry // of arrival
	arrivals int
	queued   int // how many are
	byUID    map[types.UID]*entry
	stored   allocation.State // as it is in the ledgers
	ledger   allocation.Ledger
	// certain has of the pods that guess only what the guess cannot change.
	certain allocation.Ledger
	bootID  string
	// claimsOf returns a pod's resource claims as they are known now.
	claimsOf func(*v1.Pod) allocation.PodClaims
}

func newPods(bootID string, claims func(*v1.Pod) allocation.PodClaims) *pods {
	return &pods{byUID: map[types.UID]*entry{}, bootID: bootID, claimsOf: claims}
}

// find returns nil for a pod that is not known.
func (p *pods) find(uid types.UID) *entry { return p.byUID[uid] }

func (p *pods) add(r record.Record) *entry {
	p.arrivals++
	e := &entry{Record: r, arrival: p.arrivals}
	p.order = append(p.order, e)
	p.byUID[e.Pod.UID] = e
	p.count(e, 1)
	p.account(e.Pod.UID)
	return e
}

func (p *pods) remove(e *entry) {
	p.order = slices.DeleteFunc(p.order, func(o *entry) bool { return o == e })
	delete(p.byUID, e.Pod.UID)
	p.count(e, -1)
	p.account(e.Pod.UID)
}

func (p *pods) set(e *entry, r record.Record) {
	p.count(e, -1)
	e.Record = r
	p.count(e, 1)
	p.account(r.Pod.UID)
}

// count counts a queued pod in (1) or out (-1).
func (p *pods) count(e *entry, sign int) {
	if e.State == record.Queued {
		p.queued += sign
	}
}

// follow takes over what was recorded since, and reports whether plugins have heard of releases.
func (p *pods) follow(state allocation.State) (heard bool) {
	before := p.stored
	p.stored = state
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
	return p.followOwed(before.Owed, state.Owed)
}

// followOwed takes over the releases that plugins have yet to hear of: until then nobody gets these
// devices.
func (p *pods) followOwed(before, now []allocation.Owed) (changed bool) {
	if reflect.DeepEqual(before, now) {
		return false
	}
	for _, o := range before {
		p.drop(o.Entry())
	}
	for _, o := range now {
		p.put(o.Entry(), allocation.Entry{Standing: allocation.Terminating, Assigned: o.Taken()})
	}
	return true
}

// account brings the ledgers up to date with a pod.
func (p *pods) account(uid types.UID) {
	stored, recorded := p.stored.Pods[uid]
	e := p.byUID[uid]
	switch {
	case e != nil && e.Guesses():
		e.guess = allocation.TakenBy(e.Has.Pod)
		p.ledger = p.ledger.With(uid, e.Accounted(stored))
		p.certain = p.withCertain(e, p.certain)
	case e != nil:
		e.guess = nil
		p.put(uid, e.Accounted(stored))
	case recorded:
		p.put(uid, allocation.Entry{
			Name:     stored.Namespace + "/" + stored.Name,
			Standing: allocation.Terminating, Assigned: allocation.TakenBy(stored),
		})
	default:
		p.drop(uid)
	}
}

// put gives both ledgers the same entry.
func (p *pods) put(uid types.UID, e allocation.Entry) {
	p.ledger, p.certain = p.ledger.With(uid, e), p.certain.With(uid, e)
}

// drop removes an entry from both ledgers.
func (p *pods) drop(uid types.UID) {
	p.ledger, p.certain = p.ledger.Without(uid), p.certain.Without(uid)
}

// withEntry returns another ledger with what the pod has.
func (p *pods) withEntry(e *entry, l allocation.Ledger) allocation.Ledger {
	entry, _ := p.ledger.Get(e.Pod.UID)
	return l.With(e.Pod.UID, entry)
}

// own returns the pod's assignment, or else its recorded one. After a reboot the intent counts and the
// plugins' answers do not.
func (p *pods) own(e *entry) allocation.Pod {
	if e.Has.Kind == record.Assigned && e.IsReserved() {
		return e.Has.Pod
	}
	held := p.stored.Pods[e.Pod.UID]
	if p.isVoid(held) {
		held.Containers = allocation.WithoutAnswers(held.Containers)
	}
	return held
}

// isVoid reports whether the plugins' answers were given under another boot.
func (p *pods) isVoid(held allocation.Pod) bool {
	return !held.IsEmpty() && held.BootID != p.bootID
}

// isBehind reports whether the pod still has a reason to stand in line. If an earlier pod whose turn it
// waits for is queued, that one goes first: a line moves up by one pod, and is not decided on as a whole.
func (p *pods) isBehind(e *entry, v decide.View) bool {
	o := p.find(e.After)
	if o == nil || !e.ForTurn {
		return o != nil && o.Undecided()
	}
	next := o.State == record.Queued && o.arrival < e.arrival
	return (o.Undecided() || next) && v.HasContested(e.Demand, o.Holds)
}

func (p *pods) request(e *entry) decide.Request {
	r := decide.Request{
		Pod: e.Pod, In: e.Pod.UID, Own: p.own(e), Runs: e.Runs, Claims: p.claimsOf(e.Pod),
		Advice: e.Preferences.Advice, Silent: e.Preferences.Silent, MadeWay: e.Tries.MadeWay,
	}
	if e.Claims() {
		r.Claimed, r.Claim = true, e.Has.Pod
	}
	return r
}

// anyGoesNow reports whether some pod still holds something here, and nothing any more by the kubelet's
// rules.
func (p *pods) anyGoesNow() bool {
	return slices.ContainsFunc(p.order, func(e *entry) bool { return e.GoesNow() })
}
