package allocation

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// lookAhead tries other orders when a pod has no place with its containers in the order of their
// starts, which is the kubelet's. In that order an init container can take the only place where a
// later container fits, or a small container the place of a large one.
//
// lookAhead first places the containers that last (sidecars and regular ones), in the order of
// their starts and then the largest first. It then places each init container where they will be:
// it can use what they hold, as they do not run yet. If the policy does not allow that, the init
// container goes elsewhere and gives back what it had.
//
// If no order works, lookAhead returns the first plan, with the obstacle that does not depend on
// the order. In pod scope all containers share one place, so there is nothing to try.
func (d *draft) lookAhead(refused *Rejection) (*draft, error) {
	v, last := d.view, 0
	if v.Scope == topology.PodScope && v.Policy != topology.None {
		return d, refused
	}
	for _, a := range d.containers {
		if a.kind != podspec.Init {
			last++
		}
	}
	orders := []func(a, b int) int{}
	if last < len(d.containers) {
		orders = append(orders, func(a, b int) int { return a - b })
	}
	if last > 1 && v.Own.IsEmpty() {
		orders = append(orders, d.largestFirst())
	}
	for _, order := range orders {
		ahead := newDraft(v.withoutInits(d.pod), d.pod, d.advice)
		ahead.plan.Ahead = refused
		err := ahead.placeAhead(order, v.Own)
		if err == nil || ahead.plan.Ask != nil {
			return ahead, err
		}
		d.learn(ahead, refused, err)
	}
	return d, refused
}

// withoutInits returns the view without the holdings of the pod's init containers.
func (v View) withoutInits(pod *v1.Pod) View {
	v.Own.Containers = maps.Clone(v.Own.Containers)
	for c, kind := range podspec.Containers(pod) {
		if kind == podspec.Init {
			delete(v.Own.Containers, c.Name)
		}
	}
	return v
}

// largestFirst compares containers, given by index: more items come first, then more bytes.
func (d *draft) largestFirst() func(a, b int) int {
	items, bytes := make([][]uint64, len(d.containers)), make([][]uint64, len(d.containers))
	for _, k := range kinds {
		if k.size == nil {
			continue
		}
		size := k.size(d.pod, d.view.Rules)
		for at, a := range d.containers {
			n, m := size(a.Container)
			items[at], bytes[at] = append(items[at], n), append(bytes[at], m)
		}
	}
	return func(a, b int) int {
		return cmp.Or(slices.Compare(items[b], items[a]), slices.Compare(bytes[b], bytes[a]), a-b)
	}
}

// placeAhead places the containers that last, in this order, and then the init containers.
func (d *draft) placeAhead(order func(a, b int) int, own Pod) error {
	var last, inits []int
	for at, a := range d.containers {
		if a.kind == podspec.Init {
			inits = append(inits, at)
		} else {
			last = append(last, at)
		}
	}
	slices.SortFunc(last, order)
	for _, at := range last {
		if err := d.place(at); err != nil {
			return err
		}
	}
	for _, at := range inits {
		if err := d.placeInit(at, own.Containers[d.containers[at].Name]); err != nil {
			d.plan.InWay = d.containers[at].Name
			return err
		}
	}
	for _, p := range able[lender](d.providers) {
		p.handOn()
	}
	return d.check()
}

// learn copies from a failed plan that looked ahead why there is no place that the policy allows.
// The plan in the order of starts may only say that an init container is in the way.
func (d *draft) learn(ahead *draft, refused *Rejection, err error) {
	again, ok := errors.AsType[*Rejection](err)
	switch {
	case ahead.plan.InWay != "":
		d.plan.InWay = ahead.plan.InWay
	case !ok || refused.Reason != ReasonTopology || again.Reason != ReasonTopology:
	case firstUnplaced(d).kind != podspec.Init:
		d.plan.Decisions = slices.DeleteFunc(d.plan.Decisions, func(of Decision) bool {
			return d.kindOf(of.Container) != podspec.Init
		})
		d.plan.Decisions = append(d.plan.Decisions, ahead.plan.Decisions...)
	}
}

func (d *draft) kindOf(container string) podspec.Kind {
	_, kind := podspec.Find(d.pod, container)
	return kind
}

// placeInit places an init container beside the lasting containers that start before it: on what
// later containers lend it, if that is enough and the policy allows it, otherwise on whatever is
// free at its time.
func (d *draft) placeInit(at int, own Container) (err error) {
	a := d.containers[at]
	if d.view.Keep == KeepAll && !own.IsEmpty() {
		d.give(a, own)
		return nil
	}
	before, lent := d.placed(at)
	for _, near := range []bool{true, false} {
		sub := newDraft(d.viewOfInit(a, own, lent, near), d.pod, d.advice)
		sub.plan.Ahead = d.plan.Ahead
		for _, other := range before {
			sub.give(other, d.plan.Pod.Containers[other.Name])
		}
		if near {
			for _, p := range able[lender](sub.providers) {
				p.lend(lent)
			}
		}
		if err = sub.place(at); err != nil {
			continue
		}
		got := sub.plan.Pod.Containers[a.Name]
		for _, p := range able[lender](d.providers) {
			if err == nil {
				err = p.beside(at, &got, lent)
			}
		}
		if err != nil {
			continue
		}
		d.plan.Decisions = append(d.plan.Decisions, sub.plan.Decisions...)
		d.plan.Kept = append(d.plan.Kept, sub.plan.Kept...)
		d.plan.Ask = cmp.Or(d.plan.Ask, sub.plan.Ask)
		d.give(a, got)
		return nil
	}
	return err
}

// placed returns the containers placed so far that run beside the container at this index, and what
// the others can lend it: later containers and earlier init containers.
func (d *draft) placed(at int) (before []claimant, lent []Container) {
	for i, other := range d.containers {
		held, placed := d.plan.Pod.Containers[other.Name]
		switch {
		case !placed || i == at:
		case i > at || other.kind == podspec.Init:
			lent = append(lent, held)
		default:
			before = append(before, other)
		}
	}
	return before, lent
}

// viewOfInit returns the view in which an init container is placed: what other pods hold is taken.
// If near, everything that is not lent is taken as well, for each resource of which enough is lent.
func (d *draft) viewOfInit(a claimant, own Container, lent []Container, near bool) View {
	v := d.view
	v.Own = Pod{BootID: v.Own.BootID, Containers: map[string]Container{a.Name: own}}
	if !near {
		return v
	}
	for _, p := range able[confiner](d.providers) {
		p.confine(&v, a.Container, lent)
	}
	return v
}

// firstUnplaced returns the container at which a plan ends; there is one.
func firstUnplaced(d *draft) claimant {
	return d.containers[slices.IndexFunc(d.containers, func(a claimant) bool {
		_, placed := d.plan.Pod.Containers[a.Name]
		return !placed
	})]
}
