package admission

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
)

// pods are those that admission knows, and the ledger of what they and those have that only the
// store knows. What an entry has of the node changes here only, so that the ledger follows.
type pods struct {
	order  []*entry // of arrival
	byUID  map[types.UID]*entry
	stored allocation.State // as it is in the ledger
	ledger allocation.Ledger
	bootID string
	// freed: something was given back, held or claimed, since this was last set to false.
	freed bool
}

func newPods(bootID string) *pods {
	return &pods{byUID: map[types.UID]*entry{}, bootID: bootID}
}

// find returns nil for a pod that is not known.
func (p *pods) find(uid types.UID) *entry { return p.byUID[uid] }

func (p *pods) add(e *entry) {
	p.order = append(p.order, e)
	p.byUID[e.pod.UID] = e
	p.account(e.pod.UID)
}

func (p *pods) remove(e *entry) {
	p.freed = p.freed || e.counts()
	p.order = slices.DeleteFunc(p.order, func(o *entry) bool { return o == e })
	delete(p.byUID, e.pod.UID)
	p.account(e.pod.UID)
}

// resubmit replaces what a pod requests.
func (p *pods) resubmit(e *entry, d demand) {
	e.demand = d
	p.account(d.pod.UID)
}

// follow takes over what was recorded since.
func (p *pods) follow(state allocation.State) {
	before := p.stored
	p.stored = state
	if state.Version == before.Version && before.Pods != nil {
		return
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
	p.followOwed(before.Owed, state.Owed)
}

// followOwed takes over what plugins are still to hear of: until then nobody is given it.
func (p *pods) followOwed(before, now []allocation.Owed) {
	if reflect.DeepEqual(before, now) {
		return
	}
	for _, o := range before {
		p.ledger = p.ledger.Without(o.Entry())
	}
	for _, o := range now {
		p.ledger = p.ledger.With(o.Entry(), allocation.Entry{
			Standing: allocation.Goes, Assigned: o.Taken(),
		})
	}
	p.freed = true
}

// account brings the ledger up to date with a pod.
func (p *pods) account(uid types.UID) {
	stored, recorded := p.stored.Pods[uid]
	e := p.byUID[uid]
	switch {
	case e != nil:
		p.ledger = p.ledger.With(uid, e.accounted(stored))
	case recorded:
		p.ledger = p.ledger.With(uid, allocation.Entry{
			Standing: allocation.Goes, Assigned: allocation.TakenBy(stored),
		})
	default:
		p.ledger = p.ledger.Without(uid)
	}
}

// accounted is what a pod has of the node, of which that much is recorded.
func (e *entry) accounted(stored allocation.Pod) (out allocation.Entry) {
	switch {
	case e.state.goes():
		out.Standing = allocation.Goes
	case e.claims():
		out.Standing = allocation.Claims
	}
	if e.counts() {
		out.Requests, out.Shares, out.Ports, out.Rank = e.requests, e.shares, e.ports, e.rank
	}
	out.Assigned = allocation.TakenBy(e.has.pod, stored)
	return out
}

// move gives the pod another state and reservation.
func (p *pods) move(e *entry, to state, has reservation) {
	if to != e.state {
		e.tries.due = time.Time{}
	}
	e.state, e.has = to, has
	p.account(e.pod.UID)
}

// give is move for a reservation that may be less than the pod had: others may wait for that.
func (p *pods) give(e *entry, to state, has reservation) {
	counted, before := e.counts(), e.has.pod.Containers
	p.move(e, to, has)
	if counted && (!e.counts() || !reflect.DeepEqual(before, has.pod.Containers)) {
		p.freed = true
	}
}

// leave has the pod give back what it has: it terminates.
func (p *pods) leave(e *entry) {
	switch to := transition(e.state, leave); to {
	case stay:
	case withdrawn:
		p.drop(e, to)
	default:
		p.move(e, to, e.has)
	}
}

// drop takes from the pod all that admission lets it have but what is recorded.
func (p *pods) drop(e *entry, to state) {
	e.preferences = preferences{}
	p.give(e, to, reservation{})
}

// own is what is assigned to the pod, else what is recorded of it. After a reboot the intent counts
// and the plugins' answers do not.
func (p *pods) own(e *entry) allocation.Pod {
	if e.has.kind == assigned && e.isReserved() {
		return e.has.pod
	}
	held := p.stored.Pods[e.pod.UID]
	if p.isVoid(held) {
		held.Containers = allocation.WithoutAnswers(held.Containers)
	}
	return held
}

// isVoid reports whether the plugins' answers were given under another boot.
func (p *pods) isVoid(held allocation.Pod) bool {
	return !held.IsEmpty() && held.BootID != p.bootID
}
