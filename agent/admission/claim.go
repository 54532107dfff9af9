package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology/memory"
)

// turn is where a pass through the pods is, in the order of arrival.
type turn struct {
	now time.Time
	at  int
	// ahead is what is only counted of the claims of those who came before.
	ahead v1.ResourceList
	// front ignores claims and guesses of later pods, except claims to what was recorded before a
	// reboot: nobody else gets that before it is dropped. settled ignores the pods that to the kubelet
	// hold nothing any more.
	front, settled partial
	line           line
	// displaced: the pods behind look for a place again.
	displaced bool
}

func newTurn(now time.Time) *turn {
	return &turn{
		now: now,
		front: partial{out: func(of *pods, e *entry, passed bool) bool {
			_, recorded := of.stored.Pods[e.pod.UID]
			return (e.claims() && !recorded || e.guesses()) && !passed
		}},
		settled: partial{out: func(_ *pods, e *entry, passed bool) bool {
			return e.goesNow() || e.guesses() && !passed
		}},
		line: newLine(),
	}
}

// partial is the ledger without some pods. It is made when it is asked for first and follows the
// pass, so that it costs one step for each pod. In a pass a pod changes at its turn only, but for
// the claims that displace takes.
type partial struct {
	// out leaves pods out; passed: the pod's turn has come.
	out    func(of *pods, e *entry, passed bool) bool
	made   bool
	at     int // the pod whose turn it was
	ledger allocation.Ledger
}

// upTo is the ledger at the turn of the pod at that place, which is not before the last one.
func (p *partial) upTo(at int, of *pods) allocation.Ledger {
	if !p.made {
		p.made, p.at, p.ledger = true, at, of.ledger
		for i, e := range of.order {
			if p.out(of, e, i <= at) {
				p.ledger = p.ledger.Without(e.pod.UID)
			}
		}
	}
	for _, e := range of.order[p.at : at+1] {
		entry, known := of.ledger.Get(e.pod.UID)
		if known && !p.out(of, e, true) {
			p.ledger = p.ledger.With(e.pod.UID, entry)
		} else {
			p.ledger = p.ledger.Without(e.pod.UID)
		}
	}
	p.at = at
	return p.ledger
}

// reconsider changes the decision on a pod that has no place and none to wait for. One that may not
// wait gets a claim to what is being released at this moment. One whose claim is broken takes what
// pods behind it have a claim to.
func (a *admitter) reconsider(e *entry, d *Decision, t *turn) {
	switch {
	case d.Outcome != Reject:
	case a.expired(e, t.now):
		if held, ok := a.soon(e, t); ok {
			d.Outcome, d.kind, d.claim = Wait, soon, held
		}
	case d.kind == planned && e.claims():
		*d = a.decide(e, t.front.upTo(t.at, a.pods), t)
		switch d.Outcome {
		case Admit:
			a.displace(t, d.Held)
		case Wait:
			a.displace(t, d.claim)
		}
	}
}

// soon plans for a pod that may not wait as if pods that have ended were cleared away, their releases
// recorded, and plugins had heard of them. The kubelet takes devices back in memory,
// as soon as a pod is no longer active: to it they are free.
func (a *admitter) soon(e *entry, t *turn) (held allocation.Pod, ok bool) {
	goesNow := func(o *entry) bool { return o.goesNow() }
	owed := a.pods.stored.Owed
	if a.cfg.Wait > 0 || len(owed) == 0 && !slices.ContainsFunc(a.pods.order, goesNow) {
		return allocation.Pod{}, false
	}
	ledger := t.settled.upTo(t.at, a.pods)
	for _, o := range owed {
		ledger = ledger.Without(o.Entry())
	}
	s, r := a.cfg.snapshot(a.view, ledger), a.pods.request(e)
	s.ahead, s.patient = t.ahead, false
	s.inventory = unasked(s.inventory, e.pod)
	d := decide(&s, &r)
	return d.Held, d.Outcome == Admit
}

// displace takes the claims on any of this from the pods behind; they all look for a place again.
// Once it was done, their turn in this pass is still to come.
func (a *admitter) displace(t *turn, by allocation.Pod) {
	if t.displaced {
		return
	}
	t.displaced = true
	for _, o := range a.pods.order[t.at+1:] {
		if !o.claims() || o.state != waiting && o.state != brief {
			continue
		}
		has := o.has
		if overlap(allocation.TakenBy(has.pod), allocation.TakenBy(by)) {
			has.pod = allocation.Pod{}
		}
		a.pods.move(o, transition(o.state, change), has)
	}
}

// naming is the message of a pod that waits, with the names of the pods that are gone and hold some
// of its claim until their release is recorded.
func (p *pods) naming(d Decision) string {
	if d.Reason != ReasonWaitResources {
		return d.Message
	}
	var names []string
	for _, o := range p.order {
		if !o.state.goesNow() {
			continue
		}
		held, _ := p.ledger.Get(o.pod.UID)
		if d.claim.IsEmpty() || overlap(held.Assigned, allocation.TakenBy(d.claim)) {
			names = append(names, klog.KObj(o.pod).String())
		}
	}
	message := d.Message
	if len(names) > 0 {
		message += "; being released: " + strings.Join(names[:min(len(names), 3)], ", ")
	}
	if owed := p.owed(d.claim); owed != "" {
		message += "; " + owed
	}
	return message
}

// owed says of which devices of a claim plugins are still to hear that they are released; empty: of
// none.
func (p *pods) owed(claim allocation.Pod) string {
	var names []string
	wanted := allocation.TakenBy(claim).Devices
	for _, o := range p.stored.Owed {
		for _, id := range o.IDs {
			if wanted[o.Resource].Has(id) {
				names = append(names, fmt.Sprintf("%s of %s, which %s/%s had", id, o.Resource,
					o.Namespace, o.Name))
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "the device plugin has not answered yet that it knows of the release of " +
		strings.Join(names[:min(len(names), 3)], ", ")
}

// overlap reports whether both cannot be had, or in the case of memory of the same node, whether
// that may be so.
func overlap(one, other allocation.Taken) bool {
	if !one.CPUs.Intersection(other.CPUs).IsEmpty() {
		return true
	}
	for resource, ids := range one.Devices {
		if ids.HasAny(other.Devices[resource].UnsortedList()...) {
			return true
		}
	}
	return slices.ContainsFunc(one.Memory, func(a memory.Block) bool {
		return slices.ContainsFunc(other.Memory, func(b memory.Block) bool {
			return a.Resource == b.Resource && !a.Nodes.Intersect(b.Nodes).IsEmpty()
		})
	})
}
