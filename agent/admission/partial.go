package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
)

// partial is what the pods have of the node, some of them left out. It is made when it is asked for
// first and goes on with the sweep, so that for many pods it costs no more than one step each. It
// is of one round through the order, in which a pod changes only at its turn, but for the claims
// that displace takes.
type partial struct {
	queue *Queue
	// out leaves pods out; passed: the pod's turn has come.
	out func(e *entry, passed bool) bool

	stakes stakes
	made   bool
	at     int // the pod whose turn it was
	// displaced: the pods behind have lost what was taken, and look for a place again.
	displaced bool
}

// upTo is the sums at the turn of the pod at that place, which is not before the last one.
func (p *partial) upTo(place int) stakes {
	entries := p.queue.entries
	if !p.made {
		p.make(place)
	}
	for _, e := range entries[p.at : place+1] {
		if !p.out(e, true) {
			p.copy(e.pod.UID)
		}
	}
	p.at = place
	return p.stakes
}

func (p *partial) make(place int) {
	p.made, p.at, p.stakes = true, place, newStakes()
	out := map[types.UID]bool{}
	for i, e := range p.queue.entries {
		out[e.pod.UID] = p.out(e, i <= place)
	}
	for uid := range p.queue.stakes.of {
		if !out[uid] {
			p.copy(uid)
		}
	}
}

func (p *partial) copy(uid types.UID) {
	if s, has := p.queue.stakes.of[uid]; has {
		p.stakes.put(uid, &s)
		return
	}
	p.stakes.put(uid, nil)
}

// displace takes the claims on any of this from the pods behind; they all look for a place again.
// Once it was done, their turn in this round is still to come.
func (p *partial) displace(by allocation.Pod) {
	if p.displaced {
		return
	}
	p.displaced = true
	for _, o := range p.queue.entries[p.at+1:] {
		if !o.claimed || o.phase != waiting {
			continue
		}
		o.retryAt = time.Time{}
		g := o.grip
		if overlap(g.reserved, by) {
			g.reserved = allocation.Pod{}
		}
		p.queue.move(o, queued, g)
	}
}
