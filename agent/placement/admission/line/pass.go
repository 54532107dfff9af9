package line

import (
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// Pass goes once through the pods in the order of arrival and decides on those that are queued.
type Pass struct {
	*Line
	now time.Time
	current
	// ahead sums the requests of earlier pods that have claims.
	ahead v1.ResourceList
	// withoutLater leaves out claims of later pods, except claims to what was recorded before a reboot: no
	// other pod gets that before it is dropped. withoutReleasing leaves out the pods that in the kubelet's
	// view hold nothing any more, withoutAsked those of which the API server has yet to say whether they
	// could start.
	withoutLater, withoutReleasing, withoutAsked partial

	slots    slots
	promised promises
	// displaced: the pods behind look for a place again.
	displaced bool
}

// current is the pod that the pass has come to: its place, and what the decision takes of it.
type current struct {
	at      int // its place in the order of arrival
	request decide.Request
	patient bool      // it may wait for what it lacks
	since   time.Time // it came
	// has are the devices that it claims, or of its place, by resource.
	has allocation.DeviceIDs
	// wanted has its resources; contested lists those whose plugins have a preference; hasAny: it has some of these.
	wanted    map[string]int
	contested []string
	hasAny    bool
}

// Verdict is a decision with the inputs that explain it.
type Verdict struct {
	decide.Decision
	Basis *decide.Basis
	Took  time.Duration
}

// NewPass returns a pass through the pods that has not begun.
func NewPass(of *Line, now time.Time) *Pass {
	return &Pass{
		Line: of, now: now, promised: resizes{of}.promised(),
		withoutLater: partial{out: func(of *Pods, e *Entry, passed bool) bool {
			_, recorded := of.Stored.Pods[e.Pod.UID]
			return e.Claims() && !recorded && !passed
		}},
		withoutReleasing: partial{out: func(_ *Pods, e *Entry, _ bool) bool { return e.GoesNow() }},
		withoutAsked: partial{out: func(of *Pods, e *Entry, _ bool) bool {
			_, recorded := of.Stored.Pods[e.Pod.UID]
			return e.MayGiveWay() && !recorded
		}},
	}
}

// run goes through the pods, up to the last that is queued or one that stops the line.
func (p *Pass) run() {
	for i, e := range slices.Clone(p.Order) {
		if p.Queued == 0 {
			return
		}
		if p.take(e, i); e.StopsLine() {
			return
		}
	}
}

// Front returns the ledger for a pod that takes what later pods claim.
func (p *Pass) Front(at int) allocation.Ledger { return p.withoutLater.upTo(at, &p.Pods) }

// take decides on the pod at this place if it is queued.
func (p *Pass) take(e *Entry, at int) {
	if p.at = at; e.State == record.Queued {
		p.attempt(e)
	}
	p.slots.note(p, e)
	if e.Claims() {
		p.ahead = allocation.AddRequests(p.ahead, e.Requests)
	}
}

// currentOf returns what the pass has to know of the pod at this place.
func (p *Pass) currentOf(e *Entry, at int) current {
	t := current{
		at: at, request: p.asks(e), patient: e.Waited(p.now) < p.Wait, since: e.Tries.Since,
		wanted: e.Least, contested: p.View.Contested(e.Demand),
	}
	if e.Has.Kind != record.Assigned {
		t.has = allocation.HoldingsOf(e.Has.Pod).Devices()
	}
	t.hasAny = slices.ContainsFunc(t.contested, func(name string) bool { return t.has[name].Len() > 0 })
	return t
}

// asks returns the pod's request. If pods do not wait, the last lists of disconnected plugins count
// only for pods that run.
func (p *Pass) asks(e *Entry) decide.Request {
	r := p.Request(e)
	if p.Wait <= 0 && !e.Runs {
		r.Own = p.View.WithoutAway(r.Own)
	}
	return r
}

// attempt decides on a pod with what is known now, and tells its record. Then it takes from other pods
// what this one got.
func (p *Pass) attempt(e *Entry) {
	if e.Inquiry.Begun {
		p.Set(e, e.Lacking(p.Lack(e.Pod), p.now))
	}
	p.current = p.currentOf(e, p.at)
	v, swaps := p.choose()
	p.want(e, Explain{Verdict: v})
	if p.tell(e, record.Considered{Decision: v.Decision}); e.State != record.Queued {
		return
	}
	if behind, ok := p.before(&v.Decision); ok {
		p.tell(e, behind)
		return
	}
	v, taken := p.reconsider(v)
	p.want(e, Explain{Verdict: v, Final: true})
	p.tell(e, record.Decided{Decision: v.Decision, Contested: p.hasAny})
	if taken != nil && e.State != record.Deferred {
		p.displace(*taken)
	}
	if e.State == record.Allocating {
		for o, claim := range swaps {
			p.Set(o, o.Exchanged(claim))
		}
	}
}

// beside returns what a decision on the pod beside this ledger depends on.
func (p *Pass) beside(ledger allocation.Ledger) decide.Snapshot {
	s := p.Snapshot(p.View, ledger)
	s.Ahead, s.Patient = p.ahead, p.patient
	s.Growth = p.promised.to(p.since)
	return s
}

// decide decides on the pod beside what the ledger has.
func (p *Pass) decide(ledger allocation.Ledger) Verdict {
	s, r := p.beside(ledger), p.request
	began := p.Clock()
	d := s.Decide(&r)
	return Verdict{d, decide.BasisOf(s, r, d), p.Clock().Sub(began)}
}

// reconsider returns another decision on a pod that has no place and none to wait for. A pod that may
// not wait gets a claim to what is being released at this moment. A pod whose claim is broken takes
// what later pods claim: taken; nil: nothing.
func (p *Pass) reconsider(v Verdict) (out Verdict, taken *allocation.Holdings) {
	switch {
	case v.Outcome != decide.Reject || v.Kind != decide.Planned && v.Kind != decide.Checked:
	case !p.patient:
		if held, ok := p.planPendingRelease(); ok {
			v.Outcome, v.Kind, v.Claim = decide.Wait, decide.PendingRelease, held
		}
	case v.Kind == decide.Planned && p.request.Claimed:
		v = p.decide(p.Front(p.at))
		by := allocation.HoldingsOf(v.Claim)
		switch {
		case v.Outcome == decide.Reject:
			return v, nil
		case v.Outcome == decide.Admit:
			by = allocation.HoldingsOf(v.Held)
		case reflect.DeepEqual(v.Claim.Containers, p.request.Claim.Containers):
			// The memory of those behind was claimed beside it.
			by = by.With(allocation.Memory(nil))
		}
		return v, &by
	}
	return v, nil
}

// planPendingRelease plans for a pod that may not wait as if the releases of ended pods were recorded
// and plugins had heard of them. The kubelet takes devices back in memory as soon as a pod is no
// longer active: to it they are free.
func (p *Pass) planPendingRelease() (held allocation.Pod, ok bool) {
	pending := p.Stored.PendingReleases
	if p.Wait > 0 || len(pending) == 0 && !p.anyGoesNow() {
		return allocation.Pod{}, false
	}
	ledger := p.withoutReleasing.upTo(p.at, &p.Pods)
	for _, o := range pending {
		ledger = ledger.Without(o.Entry())
	}
	s := p.beside(ledger)
	s.Patient, s.Inventory = false, decide.Unasked(s.Inventory, p.request.Pod)
	d := s.Decide(&p.request)
	return d.Held, d.Outcome == decide.Admit
}

// displace takes from the pods behind the claims that overlap. The first time in a pass they all look
// for a place again, those for which a call is under way after that. Pods that are queued keep memory
// beside what is taken: the pass comes to them later.
func (p *Pass) displace(by allocation.Holdings) {
	first, exact := !p.displaced, by.With(allocation.Memory(nil))
	p.displaced = true
	for _, o := range p.Order[p.at+1:] {
		if !o.Claims() {
			continue
		}
		has, movable := allocation.HoldingsOf(o.Has.Pod), o.State.MayBeDisplaced()
		switch {
		case movable && first:
			p.Set(o, o.Displaced(has.Overlaps(by)))
		case (movable || o.State == record.Queued) && has.Overlaps(exact):
			p.Set(o, o.Displaced(true))
		}
	}
}

// partial is the ledger without some pods. The first question makes it, and it follows the pass, so that it
// costs one step for each pod. In a pass only the pod that it has come to changes, apart from claims that
// displace takes.
type partial struct {
	// out reports whether a pod is left out; passed: the pass has come to it.
	out    func(of *Pods, e *Entry, passed bool) bool
	made   bool
	at     int // the place that the pass has come to
	ledger allocation.Ledger
}

// upTo returns the ledger for the pod at this place. The place never goes back.
func (p *partial) upTo(at int, of *Pods) allocation.Ledger {
	if !p.made {
		p.made, p.at, p.ledger = true, at, of.Ledger
		for i, e := range of.Order {
			if passed := i < at; p.out(of, e, passed) {
				p.put(of, e, passed)
			}
		}
	}
	for _, e := range of.Order[p.at : at+1] {
		p.put(of, e, true)
	}
	p.at = at
	return p.ledger
}

// put gives the ledger what counts of a pod that is left out, or that the pass has come to.
func (p *partial) put(of *Pods, e *Entry, passed bool) {
	if p.out(of, e, passed) {
		p.ledger = p.ledger.Without(e.Pod.UID)
	} else {
		p.ledger = of.withEntry(e, p.ledger)
	}
}
