package eviction

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/topology/podspec"
)

// podsWalk is a node whose pods come, grow, shrink and end while the manager looks at any time. It holds
// each eviction against what is known of the world, without the manager's own words.
type podsWalk struct {
	*world
	t      *testing.T
	random *rand.Rand
	made   int
	// gone are pods that were evicted; ends is when each of them ends.
	gone sets.Set[types.UID]
	ends map[types.UID]time.Time
	// waited is until when the last one's end is waited for.
	last   types.UID
	waited time.Time
	// met is when the threshold was met at a look.
	met time.Time
}

const (
	walkThreshold  = 100 // MiB of 1000
	walkTransition = time.Minute
)

func newPodsWalk(t *testing.T, random *rand.Rand) *podsWalk {
	w := &podsWalk{t: t, random: random, gone: sets.Set[types.UID]{}, ends: map[types.UID]time.Time{}}
	w.world = newWorld(t, kubeletv1beta1.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": fmt.Sprintf("%dMi", walkThreshold)}})
	w.cfg.Evict = w.check
	return w
}

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
	_, holds := w.uses[w.last]
	switch {
	case w.left() >= walkThreshold:
		w.t.Errorf("%s is evicted while %d MiB are left", e.Pod.Name, w.left())
	case w.gone.Has(e.Pod.UID):
		w.t.Errorf("%s is evicted twice", e.Pod.Name)
	case podspec.IsCritical(e.Pod):
		w.t.Errorf("%s is critical", e.Pod.Name)
	case holds && !now.After(w.waited):
		w.t.Errorf("%s is evicted while %s ends", e.Pod.Name, w.last)
	}
	for _, pod := range w.pods {
		if !w.gone.Has(pod.UID) && w.before(pod, e.Pod) {
			w.t.Errorf("%s is evicted before %s", e.Pod.Name, pod.Name)
		}
	}
	w.gone.Insert(e.Pod.UID)
	w.last, w.waited = e.Pod.UID, now.Add(e.Grace+patience)
	w.ends[e.Pod.UID] = now.Add(time.Duration(w.random.IntN(int(2 * patience))))
}

// before reports whether a goes before b by the kubelet's rules.
func (w *podsWalk) before(a, b *v1.Pod) bool {
	beyond := func(p *v1.Pod) int64 {
		return int64(w.uses[p.UID]<<20) - p.Spec.Containers[0].Resources.Requests.Memory().Value()
	}
	switch {
	case podspec.IsCritical(a):
		return false
	case (beyond(a) > 0) != (beyond(b) > 0):
		return beyond(a) > 0
	case *a.Spec.Priority != *b.Spec.Priority:
		return *a.Spec.Priority < *b.Spec.Priority
	}
	return beyond(a) > beyond(b)
}

// step lets something happen, and some time pass.
func (w *podsWalk) step() {
	time.Sleep(between(w.random))
	for uid, at := range w.ends {
		if !time.Now().Before(at) {
			w.remove(uid)
			delete(w.ends, uid)
		}
	}
	switch n := len(w.pods); {
	case n == 0, n < 8 && w.random.IntN(4) == 0:
		w.made++
		priority := []int32{0, 0, 5, 2_000_000_000}[w.random.IntN(4)]
		pod := podWith(fmt.Sprint("p", w.made), priority, fmt.Sprintf("memory=%dMi", 50*w.random.IntN(4)))
		w.add(pod, 20*uint64(w.random.IntN(10)))
	case w.random.IntN(12) == 0: // one ends by itself
		w.remove(w.pods[w.random.IntN(n)].UID)
	default:
		uid := w.pods[w.random.IntN(n)].UID
		w.uses[uid] = uint64(max(int(w.uses[uid])+w.random.IntN(120)-50, 0))
	}
}

func (w *podsWalk) remove(uid types.UID) {
	for i, pod := range w.pods {
		if pod.UID == uid {
			w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
			break
		}
	}
	delete(w.uses, uid)
}

// looks has the manager look, and checks the node's condition.
func (w *podsWalk) looks() {
	short := w.left() < walkThreshold
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
// without need or beside another that ends, and the condition does not flap.
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
