package shutdown

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// state is how far a shutdown is.
//
//	      preparing              the last wave is over
//	up ---------------> waves ---------------------------> over
//	 ^  <- take          |  release ->                      |
//	 '-------------------+------ cancelled -----------------'
//
// It is a value: step returns the next one.
type state struct {
	locked bool          // an inhibitor is held
	delay  time.Duration // how long logind waits for holders of a lock; zero: unknown
	down   *down         // nil: the machine does not go down
}

// down is a shutdown under way.
type down struct {
	at    int       // the wave that ends, or the number of waves: all are over
	until time.Time // the end of its time
	// waves has the wave of each pod that was told to end.
	waves map[types.UID]int
}

// kind is a kind of what was heard.
type kind int

const (
	looked   kind = iota // nothing: pods may have ended, or a wave's time is up
	found                // logind was found: it may be another one, and signals may have been missed
	signaled             // logind tells that it prepares for a shutdown, or that one was cancelled
	taken                // the inhibitor that was asked for is held
)

// heard holds what the bus told.
type heard struct {
	kind      kind
	preparing bool          // of found and signaled
	delay     time.Duration // of found
}

// candidate is a pod that runs.
type candidate struct {
	uid  types.UID
	wave int
	own  time.Duration // its own grace period
}

// input holds what a step depends on beside the state.
type input struct {
	heard
	now time.Time
	// pods run. left has the pods that were told to end and are not entirely gone.
	pods []candidate
	left sets.Set[types.UID]
}

// action says what to do.
type action int

const (
	take    action = iota // ask logind for an inhibitor
	begin                 // a shutdown begins
	cancel                // it does not come
	end                   // end a pod
	release               // all waves are over: release the inhibitor, if one is held
)

// effect is an action; pod and grace belong to end.
type effect struct {
	action action
	pod    types.UID
	grace  time.Duration
}

// leastGrace is the least time that a pod has to exit.
const leastGrace = time.Second

// step returns the state after what was heard, and what is to be done, in order.
func (s state) step(in input, waves []Wave) (state, []effect) {
	var do []effect
	switch in.kind {
	case looked:
	case taken:
		s.locked = true
	case found, signaled:
		if in.kind == found {
			s.delay = in.delay
		}
		switch {
		case in.preparing && s.down == nil:
			s.down = &down{at: -1, waves: map[types.UID]int{}}
			do = append(do, effect{action: begin})
		case !in.preparing && s.down != nil:
			s.down = nil
			do = append(do, effect{action: cancel}, effect{action: take})
		case !in.preparing && in.kind == found: // a new logind does not know our inhibitor lock
			do = append(do, effect{action: take})
		}
	}
	if s.down == nil {
		return s, do
	}
	s.down = &down{s.down.at, s.down.until, maps.Clone(s.down.waves)}
	return s.advance(in, waves, do)
}

// advance ends the pods of the present wave, and goes on to the next as long as one is over.
// Pods that were admitted at the last moment are ended even after all waves.
func (s state) advance(in input, waves []Wave, do []effect) (state, []effect) {
	d := s.down
	for {
		if d.at >= 0 {
			ends, waits := d.tell(in)
			do = append(do, ends...)
			if (waits || len(ends) > 0) && in.now.Before(d.until) {
				return s, do
			}
		}
		if d.at == len(waves) {
			return s, do
		}
		d.at++
		if d.at == len(waves) {
			s.locked = false
			return s, append(do, effect{action: release})
		}
		d.until = in.now.Add(s.scaled(waves[d.at].Grace, waves))
	}
}

// tell ends those of the present wave and of earlier ones that were not told yet: they may have
// been admitted since. waits reports whether something is left of the wave's others.
func (d *down) tell(in input) (do []effect, waits bool) {
	for uid, wave := range d.waves {
		waits = waits || wave == d.at && in.left.Has(uid)
	}
	for _, pod := range in.pods {
		if _, ends := d.waves[pod.uid]; ends || pod.wave > d.at {
			continue
		}
		d.waves[pod.uid] = d.at
		do = append(do, effect{end, pod.uid, max(leastGrace, min(pod.own, d.until.Sub(in.now)))})
	}
	return do, waits
}

// scaled shortens a grace period if logind does not wait for all waves: each loses its share.
func (s state) scaled(grace time.Duration, waves []Wave) time.Duration {
	if all := total(waves); s.delay > 0 && s.delay < all {
		return time.Duration(float64(grace) * float64(s.delay) / float64(all))
	}
	return grace
}

// due returns when the state has to be stepped at the latest; zero: not before something is heard.
func (s state) due(waves []Wave) time.Time {
	if s.down == nil || s.down.at == len(waves) {
		return time.Time{}
	}
	return s.down.until
}
