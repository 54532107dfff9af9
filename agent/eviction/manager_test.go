package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// world is a node of 1000 MiB of memory and of disk whose pods end when they are evicted, some later
// than they should.
type world struct {
	*Manager
	mu       sync.Mutex // guards the rest while the manager runs beside the test
	pressure Pressure
	journal  *Journal
	start    time.Time
	pods     []*v1.Pod
	uses     map[types.UID]uint64 // MiB, of memory and disk
	// spare is what reclaiming frees on the disk, in MiB.
	spare     uint64
	lasts     map[types.UID]time.Duration // longer than its grace
	said      []string
	unmeasure bool
	woken     chan struct{}
	// armed has the last level for each signal; glances counts.
	armed   map[Signal]int64
	glances int
	freeing bool // others end pods
}

func newWorld(t *testing.T, k kubeletv1beta1.KubeletConfiguration) *world {
	thresholds, err := Parse(&k)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{start: time.Now(), uses: map[types.UID]uint64{}, lasts: map[types.UID]time.Duration{},
		woken: make(chan struct{}, 1), armed: map[Signal]int64{}}
	if w.journal, err = OpenJournal(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	w.Manager, err = New(Config{
		Thresholds: thresholds, Pressure: &w.pressure, Transition: time.Minute, MaxGrace: 20 * time.Second,
		Meter: Meter{
			Glance: w.glance, Measure: w.measure, Woken: w.woken,
			Arm: func(_ context.Context, s Signal, left int64) { w.armed[s] = left },
		},
		PodFacts: PodFacts{
			Pods: func() []*v1.Pod {
				w.mu.Lock()
				defer w.mu.Unlock()
				return slices.Clone(w.pods)
			},
			Exclusive: func(types.UID) bool { return false },
			Freeing: func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.freeing
			},
			Holds: func(uid types.UID) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				_, holds := w.uses[uid]
				return holds
			},
			Known: func(types.UID) bool { return true },
			Grace: func(*v1.Pod) time.Duration { return 30 * time.Second },
		},
		Journal: w.journal,
		Reclaim: func(context.Context, Reclaim) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.say("reclaim")
			w.spare = 0
			return nil
		},
		Evict: w.evict,
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
	end := time.After(e.Grace - time.Second/2 + w.lasts[e.Pod.UID])
	go func() {
		<-end
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pods = slices.DeleteFunc(w.pods, func(p *v1.Pod) bool { return p.UID == e.Pod.UID })
		delete(w.uses, e.Pod.UID)
	}()
}

func (w *world) glance(ctx context.Context) (statsapi.Summary, Host, error) {
	s, h, _, err := w.measure(ctx, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.glances++
	s.Pods = nil
	return s, h, err
}

func (w *world) measure(context.Context, Signal) (s statsapi.Summary, h Host, at time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unmeasure {
		return s, h, at, errors.New("not now")
	}
	var used uint64
	for _, mi := range w.uses {
		used += mi
	}
	left := func(used uint64) uint64 { return (1000 - min(used, 1000)) << 20 }
	s.Node.Memory = memory(used<<20, left(used))
	s.Node.Fs = fs(1000<<20, left(used+w.spare), 0, 0)
	for _, pod := range w.pods {
		s.Pods = append(s.Pods, *uses(pod, w.uses[pod.UID], w.uses[pod.UID], 1))
	}
	return s, Host{Memory: 1000 << 20}, time.Now(), nil
}

// TestManager: what is done, and when.
func TestManager(t *testing.T) {
	hard := kubeletv1beta1.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "100Mi"}}
	soft := kubeletv1beta1.KubeletConfiguration{
		EvictionSoft:            map[string]string{"memory.available": "100Mi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "30s"}}
	both := kubeletv1beta1.KubeletConfiguration{EvictionHard: hard.EvictionHard,
		EvictionSoft:            map[string]string{"nodefs.available": "40Mi"},
		EvictionSoftGracePeriod: map[string]string{"nodefs.available": "30s"}}
	full := kubeletv1beta1.KubeletConfiguration{
		EvictionHard: map[string]string{"nodefs.available": "10%"}}
	for name, tc := range map[string]struct {
		k    kubeletv1beta1.KubeletConfiguration
		play func(w *world)
		want string
	}{
		"enough": {hard, func(w *world) {
			w.add(podWith("a", 0), 800)
			w.pass(time.Minute)
		}, ""},
		"one after the other, until there is enough": {hard, func(w *world) {
			w.add(podWith("a", 0), 300)
			w.add(podWith("b", 0), 400)
			w.add(podWith("c", 5), 500)
			w.pass(time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s"},
		"two": {hard, func(w *world) {
			w.add(podWith("a", 0), 300)
			w.add(podWith("b", 0), 400)
			w.add(podWith("c", 5), 950)
			w.pass(time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s, 1s Attempting to reclaim memory, " +
			"1s evict a in 1s, 2s Attempting to reclaim memory, 2s evict c in 1s"},
		"one that does not end is waited for, and not evicted twice": {hard, func(w *world) {
			w.add(podWith("a", 0), 600)
			w.add(podWith("b", 0), 650)
			w.lasts["b"] = time.Hour
			w.pass(2 * time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s, 31s Attempting to reclaim memory, " +
			"31s evict a in 1s"},
		"soft, after its grace": {soft, func(w *world) {
			w.add(podWith("a", 0), 950)
			w.pass(2 * time.Minute)
		}, "30s Attempting to reclaim memory, 30s evict a in 20s"},
		"soft, without evictionMaxPodGracePeriod": {soft, func(w *world) {
			w.cfg.MaxGrace = 0
			w.add(podWith("a", 0), 950)
			w.pass(time.Minute)
		}, "30s Attempting to reclaim memory, 30s evict a in 1s"},
		"critical pods stay": {hard, func(w *world) {
			w.add(podWith("a", 2_000_000_000), 950)
			w.pass(15 * time.Second)
		}, "0s Attempting to reclaim memory, 10s Attempting to reclaim memory"},
		"reclaiming is enough": {full, func(w *world) {
			w.spare = 500
			w.add(podWith("a", 0), 500)
			w.pass(time.Minute)
		}, "0s Attempting to reclaim ephemeral-storage, 0s reclaim"},
		"reclaiming is not enough": {full, func(w *world) {
			w.spare = 500
			w.add(podWith("a", 0), 950)
			w.pass(time.Minute)
		}, "0s Attempting to reclaim ephemeral-storage, 0s reclaim, 0s evict a in 1s"},
		"while others free something of the disk nobody goes": {full, func(w *world) {
			w.freeing = true
			w.add(podWith("a", 0), 950)
			w.pass(20500 * time.Millisecond)
			w.freeing = false
			w.pass(10 * time.Second)
		}, "21s Attempting to reclaim ephemeral-storage, 21s reclaim, 21s evict a in 1s"},
		"what others free is no memory": {hard, func(w *world) {
			w.freeing = true
			w.add(podWith("a", 0), 950)
			w.pass(20500 * time.Millisecond)
		}, "0s Attempting to reclaim memory, 0s evict a in 1s"},
		"a hog is seen soon": {hard, func(w *world) {
			w.add(podWith("a", 0), 850)
			w.pass(10500 * time.Millisecond)
			w.uses["a"] = 950
			w.pass(2 * least)
			if len(w.said) != 2 {
				w.say("not seen at once")
			}
			w.pass(10 * time.Second)
		}, "11s Attempting to reclaim memory, 11s evict a in 1s"},
		"what the kernel says is seen at once": {soft, func(w *world) {
			w.cfg.Thresholds[0].Grace = 0
			w.uses["cache"] = 0
			w.add(podWith("a", 0), 200) // a look each 700 ms
			w.pass(5 * time.Second)
			w.uses["a"] = 950
			w.woken <- struct{}{}
			w.pass(2 * least)
			w.say("now")
			w.pass(time.Minute)
		}, "5s Attempting to reclaim memory, 5s evict a in 20s, 5s now"},
		"a kernel that tells all the time": {hard, func(w *world) {
			w.add(podWith("a", 0), 200)
			for range 10_000 {
				await.Wake(w.woken)
				w.pass(time.Millisecond)
			}
			if most := int(10*time.Second/least) + 1; w.glances > most {
				w.say(fmt.Sprint(w.glances, " looks"))
			}
		}, ""},
		"a kernel that tells all the time while nobody can be evicted": {hard, func(w *world) {
			w.add(podWith("a", 2_000_000_000), 950)
			for range 150 {
				await.Wake(w.woken)
				w.pass(100 * time.Millisecond)
			}
		}, "0s Attempting to reclaim memory, 10s Attempting to reclaim memory"},
		"grace goes on while a pod ends": {both, func(w *world) {
			w.add(podWith("a", 0), 950)
			w.lasts["a"] = 29 * time.Second
			w.pass(5 * time.Second)
			w.spare = 970
			w.pass(time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict a in 1s, " +
			"36s Attempting to reclaim ephemeral-storage, 36s reclaim"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.k)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					time.Sleep(time.Nanosecond) // after what play does first
					done <- w.Run(ctx)
				}()
				w.mu.Lock()
				tc.play(w)
				w.mu.Unlock()
				cancel()
				<-done
				if got := strings.Join(w.said, ", "); got != tc.want {
					t.Errorf("got  %s\nwant %s", got, tc.want)
				}
				time.Sleep(2 * time.Hour) // pods that end late
			})
		})
	}
}

// TestPressure: conditions are published when they change, hold for the transition, and outlast a node
// that cannot be measured.
func TestPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard: map[string]string{"memory.available": "100Mi"}})
		changes := mailbox.Subscribe(w.pressure.Changes())
		w.add(podWith("static", 2_000_000_000), 950)
		look := func(want string, changed bool) {
			t.Helper()
			w.look(t.Context())
			published := len(changes) > 0
			if published {
				<-changes
			}
			if got := fmt.Sprint(w.pressure.Conditions()); got != want || published != changed {
				t.Errorf("after %v pressure is %s, published: %v; want %s, %v", time.Since(w.start), got,
					published, want, changed)
			}
		}
		look("[MemoryPressure]", true)
		w.unmeasure = true
		time.Sleep(time.Hour)
		look("[MemoryPressure]", false)
		w.unmeasure = false
		look("[MemoryPressure]", false)
		w.uses["static"] = 100
		time.Sleep(59 * time.Second)
		look("[MemoryPressure]", false)
		time.Sleep(time.Second)
		look("[]", true)
	})
}
