package eviction

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/topology/podspec"
)

// podsWalk is a node whose pods come, grow, shrink and end while the manager looks at any time, and whose
// room comes back little by little. It holds each eviction against what is known of the world, without the
// manager's own words.
type podsWalk struct {
	*world
	t      *testing.T
	random *rand.Rand
	made   int
	short  v1.ResourceName
	// victims are the pods that were evicted.
	victims map[types.UID]*victim
	last    types.UID
	// met is when the threshold was met at a look.
	met time.Time
	// seen is what was left whenever that was measured.
	seen []seen
}

// victim is a pod that was evicted.
type victim struct {
	at, until time.Time // until when its end is awaited
	used      int64
	ends      time.Time
	ended     bool
	returns   []part
}

// part is room in MiB that is free at a time.
type part struct {
	at time.Time
	mi uint64
}

type seen struct {
	at   time.Time
	left int64
}

const (
	walkThreshold  = 100 // MiB of 1000
	walkTransition = time.Minute
)

func newPodsWalk(t *testing.T, random *rand.Rand) *podsWalk {
	w := &podsWalk{t: t, random: random, victims: map[types.UID]*victim{}, short: v1.ResourceMemory}
	signal := MemoryAvailable
	if random.IntN(2) == 0 {
		w.short, signal = v1.ResourceEphemeralStorage, NodeFSAvailable
	}
	w.world = newWorld(t, kubeletv1beta1.KubeletConfiguration{
		EvictionHard: map[string]string{string(signal): fmt.Sprintf("%dMi", walkThreshold)}})
	w.cfg.Evict = w.check
	measure := w.cfg.Measure
	w.cfg.Measure = func(ctx context.Context, s Signal) (Measured, error) {
		w.see()
		return measure(ctx, s)
	}
	return w
}

func (w *podsWalk) see() { w.seen = append(w.seen, seen{time.Now(), w.left()}) }

func (w *podsWalk) left() int64 {
	left := int64(1000)
	for _, mi := range w.uses {
		left -= int64(mi)
	}
	return max(left, 0)
}

// check holds an eviction against the world.
func (w *podsWalk) check(e Eviction) {
	now := time.Now()
	last := w.victims[w.last]
	switch {
	case w.left() >= walkThreshold:
		w.t.Errorf("%s is evicted while %d MiB are left", e.Pod.Name, w.left())
	case w.gone.Has(e.Pod.UID):
		w.t.Errorf("%s is evicted twice", e.Pod.Name)
	case podspec.IsCritical(e.Pod):
		w.t.Errorf("%s is critical", e.Pod.Name)
	case last != nil && !last.ended && !now.After(last.until):
		w.t.Errorf("%s is evicted while %s ends", e.Pod.Name, w.last)
	}
	if want := w.next(); w.before(want, e.Pod) || w.before(e.Pod, want) {
		w.t.Errorf("%s is evicted, want %s", e.Pod.Name, want.Name)
	}
	for uid, v := range w.victims {
		if v.ended && w.awaited(v) && !w.falls() {
			w.t.Errorf("%s is evicted while what %s used comes back", e.Pod.Name, uid)
		}
	}
	w.gone.Insert(e.Pod.UID)
	w.last = e.Pod.UID
	w.victims[e.Pod.UID] = &victim{at: now, until: now.Add(e.Grace + patience),
		used: int64(w.uses[e.Pod.UID]), ends: now.Add(time.Duration(w.random.IntN(int(2 * patience))))}
}

// awaited reports whether what the ended pod used was still coming back, as far as could be seen.
func (w *podsWalk) awaited(v *victim) bool {
	rest := time.Second
	if w.short == v1.ResourceEphemeralStorage {
		rest = 10 * time.Second
	}
	back, moved := int64(0), v.ends
	for i, s := range w.seen[1:] {
		before := w.seen[i]
		if before.at.Before(v.at) {
			continue
		}
		rose := max(s.left-before.left, 0)
		if back += rose; rose > v.used/64 && s.at.After(moved) {
			moved = s.at
		}
		if back >= v.used-v.used/8 || s.at.Sub(moved) >= rest {
			return false
		}
	}
	return v.ends.Before(v.until) && time.Since(v.ends) < 2*time.Minute
}

// falls reports whether what is left would soon be used up, by any two amounts since the last end.
func (w *podsWalk) falls() bool {
	now, left := time.Now(), w.left()
	var since time.Time
	for _, v := range w.victims {
		if v.ended && v.ends.After(since) && !v.ends.After(v.until) {
			since = v.ends
		}
	}
	return slices.ContainsFunc(w.seen, func(s seen) bool {
		past, fell := now.Sub(s.at), s.left-left
		return !s.at.Before(since) && past >= time.Second && fell > 0 &&
			left*int64(past) < fell*int64(10*time.Second)
	})
}

// next returns the pod that is to go: the first of those that have to, as few as possible.
func (w *podsWalk) next() *v1.Pod {
	var all []*v1.Pod
	for _, pod := range w.pods {
		if !w.gone.Has(pod.UID) && !podspec.IsCritical(pod) {
			all = append(all, pod)
		}
	}
	slices.SortStableFunc(all, func(a, b *v1.Pod) int {
		switch {
		case w.before(a, b):
			return -1
		case w.before(b, a):
			return 1
		}
		return 0
	})
	enough := func(pods []*v1.Pod) bool {
		left := w.left()
		for _, pod := range pods {
			left += int64(w.uses[pod.UID])
		}
		return left >= walkThreshold
	}
	for n := range all {
		if first := all[:n+1]; enough(first) {
			for len(first) > 1 && enough(first[1:]) {
				first = first[1:]
			}
			return first[0]
		}
	}
	return all[0]
}

// before reports whether a goes before b by the kubelet's rules.
func (w *podsWalk) before(a, b *v1.Pod) bool {
	beyond := func(p *v1.Pod) int64 {
		request := p.Spec.Containers[0].Resources.Requests[w.short]
		return int64(w.uses[p.UID]<<20) - request.Value()
	}
	switch {
	case podspec.IsCritical(a):
		return false
	case (beyond(a) > 0) != (beyond(b) > 0):
		return beyond(a) > 0
	case *a.Spec.Priority != *b.Spec.Priority:
		return *a.Spec.Priority < *b.Spec.Priority
	case w.short == v1.ResourceEphemeralStorage:
		return w.uses[a.UID] > w.uses[b.UID]
	}
	return beyond(a) > beyond(b)
}

// step lets something happen, and some time pass.
func (w *podsWalk) step() {
	time.Sleep(between(w.random))
	now := time.Now()
	for uid, v := range w.victims {
		if !v.ended && !now.Before(v.ends) {
			w.ends(uid, v)
		}
		w.returns(uid, v)
	}
	switch n := len(w.pods); {
	case n == 0, n < 8 && w.random.IntN(4) == 0:
		w.made++
		priority := []int32{0, 0, 5, 2_000_000_000}[w.random.IntN(4)]
		pod := podWith(fmt.Sprint("p", w.made), priority,
			fmt.Sprintf("%s=%dMi..", w.short, 50*w.random.IntN(4)))
		w.add(pod, 20*uint64(w.random.IntN(10)))
	case w.random.IntN(12) == 0: // one ends by itself
		uid := w.pods[w.random.IntN(n)].UID
		if v := w.victims[uid]; v != nil {
			w.ends(uid, v)
		} else {
			w.ended(uid)
		}
	default:
		uid := w.pods[w.random.IntN(n)].UID
		w.uses[uid] = uint64(max(int(w.uses[uid])+w.random.IntN(120)-50, 0))
	}
}

// ends ends a victim, whose room comes back in parts, or not for long.
func (w *podsWalk) ends(uid types.UID, v *victim) {
	mi := w.uses[uid]
	w.ended(uid)
	w.uses[uid] = mi
	v.ended, v.ends = true, time.Now()
	at := v.ends
	if w.random.IntN(8) == 0 {
		at = at.Add(time.Hour)
	}
	for n := uint64(3); n > 0; n-- {
		at = at.Add(time.Duration(w.random.IntN(int(5 * time.Second))))
		v.returns = append(v.returns, part{at, mi / n})
		mi -= mi / n
	}
}

// returns frees what is due of a victim's room.
func (w *podsWalk) returns(uid types.UID, v *victim) {
	for len(v.returns) > 0 && !time.Now().Before(v.returns[0].at) {
		w.uses[uid] -= v.returns[0].mi
		v.returns = v.returns[1:]
	}
	if v.ended && len(v.returns) == 0 {
		delete(w.uses, uid)
	}
}

// looks has the manager look, and checks the node's condition.
func (w *podsWalk) looks() {
	short := w.left() < walkThreshold
	w.see()
	w.look(w.t.Context())
	now := time.Now()
	if short {
		w.met = now
	}
	want := short || !w.met.IsZero() && now.Sub(w.met) < walkTransition
	if holds := len(w.pressure.Conditions()) > 0; holds != want {
		w.t.Errorf("MemoryPressure is %v; it was met at %v, and now is %v", holds, w.met, now)
	}
}

// TestPodsWalk: whatever pods do and whenever the manager is woken, no pod is evicted out of order, twice,
// without need, beside another that ends or while its room comes back, and the condition does not flap.
func TestPodsWalk(t *testing.T) {
	steps := walkSteps(t)
	random := rand.New(rand.NewPCG(3, 4))
	evicted := 0
	for done := 0; done < steps && !t.Failed(); done += 500 {
		synctest.Test(t, func(t *testing.T) {
			w := newPodsWalk(t, random)
			for range 500 {
				w.step()
				w.looks()
				if t.Failed() {
					return
				}
			}
			evicted += len(w.gone)
		})
	}
	if evicted < steps/100 {
		t.Errorf("only %d pods were evicted in %d steps", evicted, steps)
	}
}
