package eviction

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// world is a node of 1000 MiB of memory and of disk whose pods end when they are evicted, some later
// than they should.
type world struct {
	*Manager
	mu       sync.Mutex // guards the rest while the manager runs beside the test
	pressure Pressure
	start    time.Time
	pods     []*v1.Pod
	// gone are pods that were evicted.
	gone sets.Set[types.UID]
	uses map[types.UID]uint64 // MiB, of memory and disk
	// late is how long after the end of an evicted pod its room is free.
	late time.Duration
	// spare is what reclaiming frees on the disk, in MiB.
	spare     uint64
	removed   bool                        // it was reclaimed
	lasts     map[types.UID]time.Duration // longer than its grace
	said      []string
	unmeasure bool
	woken     chan struct{}
	// armed has the last level for each signal; glances counts.
	armed   map[Signal]int64
	glances int
	// believed is what is known of the use of pods with volumes until these are measured anew, which
	// takes a second.
	believed map[types.UID]uint64
	// ago is how long before the start what is believed was measured.
	ago time.Duration
	// beyond has the use of pods that their statistics lack.
	beyond map[types.UID]Beyond
	// slow are pods whose volumes take long: five seconds.
	slow sets.Set[types.UID]
	// stale is how old what is measured is.
	stale time.Duration
	// keeps: the room of ended pods comes back when their containers are removed.
	keeps bool
	dead  sets.Set[types.UID]
}

func newWorld(t *testing.T, k kubeletv1beta1.KubeletConfiguration) *world {
	thresholds, err := Parse(&k)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{start: time.Now(), uses: map[types.UID]uint64{}, lasts: map[types.UID]time.Duration{},
		gone: sets.Set[types.UID]{}, dead: sets.Set[types.UID]{}, woken: make(chan struct{}, 1), armed: map[Signal]int64{}}
	w.Manager, err = New(Config{
		Thresholds: thresholds, Pressure: &w.pressure, Transition: time.Minute, MaxGrace: 20 * time.Second,
		Meter: Meter{
			Glance: w.glance, Measure: w.measure, Anew: w.anew, Woken: w.woken,
			Arm: func(_ context.Context, s Signal, left int64) { w.armed[s] = left },
		},
		PodFacts: PodFacts{
			Pods: func() []*v1.Pod {
				w.mu.Lock()
				defer w.mu.Unlock()
				return slices.DeleteFunc(slices.Clone(w.pods),
					func(p *v1.Pod) bool { return w.gone.Has(p.UID) })
			},
			Exclusive: func(types.UID) bool { return false },
			Holds: func(uid types.UID) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return slices.ContainsFunc(w.pods, func(p *v1.Pod) bool { return p.UID == uid })
			},
			Last:  func() (types.UID, Signal, bool) { return "", "", false },
			Grace: func(*v1.Pod) time.Duration { return 30 * time.Second },
		},
		Reclaim: w.reclaim,
		Evict:   w.evict,
		Tell: func(_, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.say(message)
		},
		Registry: metrics.NewKubeRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) say(what string) {
	w.said = append(w.said, fmt.Sprintf("%v %s", time.Since(w.start).Round(time.Second), what))
}

func (w *world) add(pod *v1.Pod, mi uint64) {
	w.pods = append(w.pods, pod)
	w.uses[pod.UID] = mi
}

// runs adds pods that use so many MiB: "hog 950, c 500 5, d 300 0 memory=1Gi..", each with a priority
// and requests unless these are 0 and none.
func (w *world) runs(text string) {
	for one := range strings.SplitSeq(text, ", ") {
		var name, requests string
		var mi uint64
		var priority int32
		if n, err := fmt.Sscan(one, &name, &mi, &priority, &requests); n < 2 {
			panic(fmt.Sprintf("%q: %v", one, err))
		}
		w.add(podWith(name, priority, requests), mi)
	}
}

// own has somebody else evict a pod, for a limit of its own.
func (w *world) own(name string) {
	pod := podWith(name, 0)
	w.add(pod, 0)
	w.gone.Insert(pod.UID)
	w.mu.Unlock()
	defer w.mu.Lock()
	w.Note(Eviction{Pod: pod, OwnLimit: true, Grace: time.Second})
}

// ended has a pod end.
func (w *world) ended(uid types.UID) {
	w.pods = slices.DeleteFunc(w.pods, func(p *v1.Pod) bool { return p.UID == uid })
	delete(w.uses, uid)
}

// pass lets time pass for whoever holds mu.
func (w *world) pass(d time.Duration) {
	w.mu.Unlock()
	time.Sleep(d)
	w.mu.Lock()
}

// set has a pod use so much.
func (w *world) set(uid types.UID, mi uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uses[uid] = mi
}

// news returns what was said since it was called last.
func (w *world) news() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

func (w *world) evict(e Eviction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(fmt.Sprintf("evict %s in %v", e.Pod.Name, e.Grace))
	w.gone.Insert(e.Pod.UID)
	end := time.After(e.Grace - time.Second/2 + w.lasts[e.Pod.UID])
	go func() {
		<-end
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pods = slices.DeleteFunc(w.pods, func(p *v1.Pod) bool { return p.UID == e.Pod.UID })
		if w.keeps {
			w.dead.Insert(e.Pod.UID)
			return
		}
		w.pass(w.late)
		delete(w.uses, e.Pod.UID)
	}()
}

func (w *world) anew(uids []types.UID) (soon, late []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range uids {
		if w.slow.Has(uid) {
			late = append(late, uid)
		} else {
			soon = append(soon, uid)
		}
	}
	w.say(fmt.Sprintf("measure %v", soon))
	w.measured(soon, time.Second)
	w.measured(late, 5*time.Second)
	return soon, late
}

// measured has pods measured after a while.
func (w *world) measured(uids []types.UID, after time.Duration) {
	time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, uid := range uids {
			delete(w.believed, uid)
		}
	})
}

// reclaim removes what is spare; its room comes back as late as that of pods.
func (w *world) reclaim(context.Context, Reclaim) (some bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.dead) > 0 {
		time.AfterFunc(w.late, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			maps.DeleteFunc(w.uses, func(uid types.UID, _ uint64) bool { return w.dead.Has(uid) })
		})
		return true, nil
	}
	if w.spare == 0 || w.removed {
		return false, nil
	}
	w.say("reclaim")
	w.removed = true
	if w.late == 0 {
		w.spare = 0
	}
	time.AfterFunc(w.late, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.spare = 0
	})
	return true, nil
}

func (w *world) glance(ctx context.Context) (statsapi.Summary, Host, error) {
	s, err := w.measure(ctx, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.glances++
	s.Pods = nil
	return s.Summary, s.Host, err
}

func (w *world) measure(context.Context, Signal) (s Measured, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unmeasure {
		return s, errors.New("not now")
	}
	var used uint64
	for _, mi := range w.uses {
		used += mi
	}
	left := func(used uint64) uint64 { return (1000 - min(used, 1000)) << 20 }
	s.Node.Memory = memory(used<<20, left(used))
	s.Node.Fs = fs(1000<<20, left(used+w.spare), 0, 0)
	for _, pod := range w.pods {
		disk, old := w.believed[pod.UID]
		if !old {
			disk = w.uses[pod.UID]
		}
		s.Pods = append(s.Pods, *uses(pod, w.uses[pod.UID], disk, 1))
		at := metav1.Now()
		if old {
			at = metav1.NewTime(w.start.Add(-w.ago))
		}
		one := &s.Pods[len(s.Pods)-1]
		one.EphemeralStorage.Time = at
		if w.believed != nil {
			one.VolumeStats = []statsapi.VolumeStats{{Name: "cache", FsStats: statsapi.FsStats{Time: at}}}
		}
	}
	s.Host, s.At, s.Beyond = Host{Memory: 1000 << 20}, time.Now().Add(-w.stale), w.beyond
	return s, nil
}
