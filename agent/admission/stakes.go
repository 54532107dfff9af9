package admission

import (
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
)

// stakes sum up what the pods have of the node, so that a plan need not ask each of them. There is
// one for each pod that has anything; account is where it becomes another one.
type stakes struct {
	of map[types.UID]stake
	// all is what all pods hold, stay that of those that will not give it back.
	all, stay, going *allocation.Tally
	// requests are by standing.
	requests [3]v1.ResourceList
	// sharers are the pods with containers that share CPUs, by standing.
	sharers [3]int
}

// stake is what one pod has of the node.
type stake struct {
	standing standing
	// taken is what is recorded of it and what is reserved for it.
	taken allocation.Taken
	// requests count if the pod has a place or a claim.
	requests v1.ResourceList
	shares   bool
}

type standing int

const (
	staying  standing = iota
	claiming          // it waits with a claim
	going             // it terminates, or only the store knows it: it may
)

func newStakes() stakes {
	return stakes{
		of:  map[types.UID]stake{},
		all: allocation.NewTally(), stay: allocation.NewTally(), going: allocation.NewTally(),
		requests: [3]v1.ResourceList{{}, {}, {}},
	}
}

// put replaces the stake of a pod; nil: it has none.
func (l *stakes) put(uid types.UID, next *stake) {
	before, ok := l.of[uid]
	if ok && next != nil && before.same(*next) {
		return
	}
	if ok {
		l.all.Remove(before.taken)
		l.side(before).Remove(before.taken)
		subtract(l.requests[before.standing], before.requests)
		if before.shares {
			l.sharers[before.standing]--
		}
		delete(l.of, uid)
	}
	if next == nil {
		return
	}
	l.of[uid] = *next
	l.all.Add(next.taken)
	l.side(*next).Add(next.taken)
	add(l.requests[next.standing], next.requests)
	if next.shares {
		l.sharers[next.standing]++
	}
}

// same is quick, unlike to make the sums anew that a change of them costs.
func (s stake) same(o stake) bool {
	return s.standing == o.standing && s.shares == o.shares && s.taken.CPUs.Equals(o.taken.CPUs) &&
		slices.Equal(s.taken.Memory, o.taken.Memory) &&
		maps.EqualFunc(s.taken.Devices, o.taken.Devices, sets.Set[string].Equal) &&
		maps.EqualFunc(s.requests, o.requests, func(a, b resource.Quantity) bool {
			return a.Cmp(b) == 0
		})
}

func (l *stakes) side(s stake) *allocation.Tally {
	if s.standing == going {
		return l.going
	}
	return l.stay
}

// anyGoing reports whether a pod may still give back what it has.
func (l *stakes) anyGoing() bool {
	for _, s := range l.of {
		if s.standing == going {
			return true
		}
	}
	return false
}

// others are what all pods but this one request, by standing.
func (l *stakes) others(own stake) (out [3]v1.ResourceList, sharers [3]int) {
	sharers = l.sharers
	for i := range out {
		out[i] = add(v1.ResourceList{}, l.requests[i])
	}
	subtract(out[own.standing], own.requests)
	if own.shares {
		sharers[own.standing]--
	}
	return out, sharers
}

// account brings the pod's stake up to date. It follows every change of what an entry has of the
// node: of its phase, its grip, its demand and whether it is leaving, and of what is recorded.
func (q *Queue) account(uid types.UID, e *entry) {
	stored, recorded := q.stored.Pods[uid]
	if e == nil {
		if !recorded {
			q.stakes.put(uid, nil)
			return
		}
		q.stakes.put(uid, &stake{standing: going, taken: allocation.TakenBy(stored)})
		return
	}
	s := stake{}
	switch {
	case !stays(e):
		s.standing = going
	case e.claimed:
		s.standing = claiming
	}
	if e.holds() {
		s.requests, s.shares = e.requests, e.shares
	}
	var pods []allocation.Pod
	if e.isReserved() {
		pods = append(pods, e.reserved)
	}
	if recorded {
		pods = append(pods, stored)
	}
	s.taken = allocation.TakenBy(pods...)
	q.stakes.put(uid, &s)
}

// follow takes over what was recorded since.
func (q *Queue) follow() {
	before := q.stored
	q.stored = q.cfg.Store.State()
	if q.stored.Version == before.Version && before.Pods != nil {
		return
	}
	for uid := range before.Pods {
		if _, kept := q.stored.Pods[uid]; !kept {
			q.account(uid, q.find(uid))
		}
	}
	for uid, p := range q.stored.Pods {
		if b, known := before.Pods[uid]; !known || !sameContainers(b, p) {
			q.account(uid, q.find(uid))
		}
	}
}

// sameContainers is quick for what a commit left as it was: the map is the same one then.
func sameContainers(a, b allocation.Pod) bool {
	first, second := reflect.ValueOf(a.Containers), reflect.ValueOf(b.Containers)
	return first.UnsafePointer() == second.UnsafePointer() ||
		reflect.DeepEqual(a.Containers, b.Containers)
}

// move gives the pod another phase and grip.
func (q *Queue) move(e *entry, p phase, g grip) {
	e.phase, e.grip = p, g
	q.account(e.pod.UID, e)
}

// hold replaces what the pod has of the node; pods may wait for what it had.
func (q *Queue) hold(e *entry, p phase, g grip) {
	held, before := e.holds(), e.reserved.Containers
	q.move(e, p, g)
	if held && (!e.holds() || !reflect.DeepEqual(before, g.reserved.Containers)) {
		q.news.freed = true
	}
}

// letGo takes from the pod what it has no claim to any more.
func (q *Queue) letGo(e *entry) {
	e.counsel = counsel{}
	q.hold(e, e.phase, grip{})
}

// add adds to a and returns it.
func add(a, b v1.ResourceList) v1.ResourceList {
	for name, quantity := range b {
		total := a[name]
		total.Add(quantity)
		a[name] = total
	}
	return a
}

func subtract(a, b v1.ResourceList) {
	for name, quantity := range b {
		left := a[name]
		left.Sub(quantity)
		a[name] = left
	}
}
