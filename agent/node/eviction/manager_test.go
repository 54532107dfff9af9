package eviction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

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
		EvictionHard: map[string]string{"nodefs.available": "100Mi"}}
	for name, tc := range map[string]struct {
		k    kubeletv1beta1.KubeletConfiguration
		play func(w *world)
		want string
	}{
		"enough": {hard, func(w *world) {
			w.runs("a 800")
			w.pass(time.Minute)
		}, ""},
		"one after the other, until there is enough": {hard, func(w *world) {
			w.runs("a 300, b 400, c 500 5")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s"},
		"two": {hard, func(w *world) {
			w.runs("a 300, b 400, c 950 5")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s, 2s Attempting to reclaim memory, " +
			"2s evict a in 1s, 3s Attempting to reclaim memory, 3s evict c in 1s"},
		"one that does not end is waited for, and not evicted twice": {hard, func(w *world) {
			w.runs("a 600, b 650")
			w.lasts["b"] = time.Hour
			w.pass(2 * time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s, 31s Attempting to reclaim memory, " +
			"31s evict a in 1s"},
		"what was measured before the last one went counts no more": {hard, func(w *world) {
			w.stale = 5 * time.Second
			w.runs("a 300, b 400, c 950 5")
			w.pass(10 * time.Second)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s, 6s Attempting to reclaim memory, " +
			"6s evict a in 1s"},
		"volumes are not measured for memory": {hard, func(w *world) {
			w.believed = map[types.UID]uint64{"a": 1}
			w.runs("a 950")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim memory, 0s evict a in 1s"},
		"soft, after its grace": {soft, func(w *world) {
			w.runs("a 950")
			w.pass(2 * time.Minute)
		}, "30s Attempting to reclaim memory, 30s evict a in 20s"},
		"soft, without evictionMaxPodGracePeriod": {soft, func(w *world) {
			w.cfg.MaxGrace = 0
			w.runs("a 950")
			w.pass(time.Minute)
		}, "30s Attempting to reclaim memory, 30s evict a in 1s"},
		"soft, with an evictionMaxPodGracePeriod that is negative": {soft, func(w *world) {
			w.cfg.MaxGrace = -time.Second
			w.runs("a 950")
			w.pass(time.Minute)
		}, "30s Attempting to reclaim memory, 30s evict a in 1s"},
		"critical pods stay": {hard, func(w *world) {
			w.runs("a 950 2000000000")
			w.pass(15 * time.Second)
		}, "0s Attempting to reclaim memory, 10s Attempting to reclaim memory"},
		"reclaiming is enough": {full, func(w *world) {
			w.spare = 500
			w.runs("a 500")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim ephemeral-storage, 0s reclaim"},
		"reclaiming is not enough": {full, func(w *world) {
			w.spare = 500
			w.runs("a 950")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim ephemeral-storage, 0s reclaim, " +
			"10s Attempting to reclaim ephemeral-storage, 10s evict a in 1s"},
		"reclaiming is not enough, and the disk fills": {full, func(w *world) {
			w.late, w.spare = 9*time.Second, 350
			w.runs("a 100")
			for range 60 {
				w.pass(100 * time.Millisecond)
				w.uses["a"] += 10 // 100 MiB/s
			}
		}, "6s Attempting to reclaim ephemeral-storage, 6s reclaim, 6s evict a in 1s"},
		"while others free something of the disk nobody goes": {full, func(w *world) {
			w.own("a")
			w.runs("b 950")
			w.pass(20500 * time.Millisecond)
			w.ended("a")
			w.pass(15 * time.Second)
		}, "31s Attempting to reclaim ephemeral-storage, 31s evict b in 1s"},
		"what others free is no memory": {hard, func(w *world) {
			w.own("a")
			w.runs("b 950")
			w.pass(20500 * time.Millisecond)
		}, "0s Attempting to reclaim memory, 0s evict b in 1s"},
		"room of a disk comes back late, and nobody else goes": {full, func(w *world) {
			w.late = 9 * time.Second
			w.runs("bystander 100, hog 850")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim ephemeral-storage, 0s evict hog in 1s"},
		"room that does not come back is not awaited for ever": {full, func(w *world) {
			w.late = time.Hour
			w.runs("b 100, a 850")
			w.pass(15 * time.Second)
		}, "0s Attempting to reclaim ephemeral-storage, 0s evict a in 1s, " +
			"11s Attempting to reclaim ephemeral-storage, 11s evict b in 1s"},
		"another hog that uses up the disk is not waited for": {full, func(w *world) {
			w.late = 9 * time.Second
			w.runs("b 100, a 810")
			for range 30 {
				w.pass(100 * time.Millisecond)
				w.uses["b"]++ // 10 MiB/s
			}
		}, "0s Attempting to reclaim ephemeral-storage, 0s evict a in 1s, " +
			"2s Attempting to reclaim ephemeral-storage, 2s evict b in 1s"},
		"what an ended pod leaves on the disk is removed": {full, func(w *world) {
			w.keeps, w.late = true, 9*time.Second
			w.runs("bystander 100, hog 850")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim ephemeral-storage, 0s evict hog in 1s"},
		"volumes are measured anew before a pod is chosen": {full, func(w *world) {
			w.believed = map[types.UID]uint64{"b": 200, "hog": 1}
			w.runs("b 200, hog 750")
			w.pass(time.Minute)
		}, "0s measure [b hog], 1s Attempting to reclaim ephemeral-storage, 1s evict hog in 1s"},
		"a pod that has made much lately need not be among the first": {full, func(w *world) {
			w.believed = map[types.UID]uint64{"hog": 1}
			for _, name := range strings.Fields("a b c d e f g h i j k l") {
				w.believed[types.UID(name)] = 20
				w.runs(name + " 20")
			}
			w.runs("hog 710")
			w.pass(time.Minute)
		}, "0s measure [a b c d e f g h i j k l hog], 1s Attempting to reclaim ephemeral-storage, " +
			"1s evict hog in 1s"},
		"what was measured a second ago is measured anew too": {full, func(w *world) {
			w.believed, w.ago = map[types.UID]uint64{"b": 200, "hog": 1}, time.Second
			w.runs("b 200, hog 750")
			w.pass(time.Minute)
		}, "0s measure [b hog], 1s Attempting to reclaim ephemeral-storage, 1s evict hog in 1s"},
		"those that may have written most are measured first": {full, func(w *world) {
			w.believed = map[types.UID]uint64{"b": 200, "hog": 1}
			w.beyond = map[types.UID]Beyond{"hog": {Grown: 1 << 20}}
			w.runs("b 200, hog 750")
			w.pass(time.Minute)
		}, "0s measure [hog b], 1s Attempting to reclaim ephemeral-storage, 1s evict hog in 1s"},
		"what takes long is awaited if all that is known is not enough": {full, func(w *world) {
			w.believed, w.slow = map[types.UID]uint64{"hog": 1}, sets.New[types.UID]("hog")
			w.runs("b 20, hog 940")
			w.pass(time.Minute)
		}, "0s measure [], 5s Attempting to reclaim ephemeral-storage, 5s evict hog in 1s"},
		"an eviction that freed nothing makes it look again": {full, func(w *world) {
			w.believed, w.slow = map[types.UID]uint64{"hog": 1}, sets.New[types.UID]("hog")
			w.late = time.Hour
			w.runs("a 200, b 150, hog 600")
			w.pass(8 * time.Second)
			w.believed["hog"] = 1
			w.pass(10 * time.Second)
		}, "0s measure [], 0s Attempting to reclaim ephemeral-storage, 0s evict a in 1s, 11s measure [], " +
			"16s Attempting to reclaim ephemeral-storage, 16s evict hog in 1s"},
		"volumes that take long are not awaited": {full, func(w *world) {
			w.believed = map[types.UID]uint64{"b": 200, "hog": 1}
			w.slow = sets.New[types.UID]("b", "hog")
			w.runs("b 200, hog 750")
			w.pass(time.Minute)
		}, "0s measure [], 0s Attempting to reclaim ephemeral-storage, 0s evict b in 1s"},
		"volumes are awaited while the disk lasts four times as long": {full, func(w *world) {
			w.believed = map[types.UID]uint64{"b": 200, "hog": 1}
			w.runs("b 200, hog 650")
			for range 100 {
				w.pass(100 * time.Millisecond)
				w.uses["hog"]++
			}
		}, "6s measure [b hog], 7s Attempting to reclaim ephemeral-storage, 7s evict hog in 1s"},
		"volumes are not awaited while the disk fills faster": {full, func(w *world) {
			w.believed = map[types.UID]uint64{"b": 200, "hog": 1}
			w.runs("b 200, hog 401")
			for range 60 {
				w.pass(100 * time.Millisecond)
				w.uses["hog"] += 6
			}
		}, "5s measure [b hog], 5s Attempting to reclaim ephemeral-storage, 5s evict b in 1s"},
		"what was removed comes back late": {full, func(w *world) {
			w.late, w.spare = 9*time.Second, 500
			w.runs("a 500")
			w.pass(time.Minute)
		}, "0s Attempting to reclaim ephemeral-storage, 0s reclaim"},
		"a hog is seen soon": {hard, func(w *world) {
			w.runs("a 850")
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
			w.runs("a 200") // a look each 700 ms
			w.pass(5 * time.Second)
			w.uses["a"] = 950
			w.woken <- struct{}{}
			w.pass(2 * least)
			w.say("now")
			w.pass(time.Minute)
		}, "5s Attempting to reclaim memory, 5s evict a in 20s, 5s now"},
		"a kernel that tells all the time": {hard, func(w *world) {
			w.runs("a 200")
			for range 10_000 {
				await.Wake(w.woken)
				w.pass(time.Millisecond)
			}
			if most := int(10*time.Second/least) + 1; w.glances > most {
				w.say(fmt.Sprint(w.glances, " looks"))
			}
		}, ""},
		"a kernel that tells all the time while nobody can be evicted": {hard, func(w *world) {
			w.runs("a 950 2000000000")
			for range 150 {
				await.Wake(w.woken)
				w.pass(100 * time.Millisecond)
			}
		}, "0s Attempting to reclaim memory, 10s Attempting to reclaim memory"},
		"grace goes on while a pod ends": {both, func(w *world) {
			w.runs("a 950")
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
		w.runs("static 950 2000000000")
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

// TestNoPodToEvict: that there is no pod to evict is logged once while that lasts, and again when the node
// runs short anew.
func TestNoPodToEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard: map[string]string{"memory.available": "100Mi"}})
		var log strings.Builder
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		w.runs("static 950 2000000000")
		looks := func(want int) {
			t.Helper()
			for range 5 {
				w.look(ctx)
				time.Sleep(period)
			}
			if got := strings.Count(log.String(), "there is no pod to evict"); got != want {
				t.Errorf("after %v it is logged %d times, want %d", time.Since(w.start), got, want)
			}
		}
		looks(1)
		w.uses["static"] = 100
		time.Sleep(time.Hour)
		looks(1)
		w.uses["static"] = 950
		looks(2)
	})
}

// TestCounts: an eviction counts for the threshold that it relieves, and the age of what was measured for
// all that are met. The kernel is told how much is left before others are met, and nothing of these.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "60Mi"},
			EvictionSoft:            map[string]string{"memory.available": "150Mi"},
			EvictionSoftGracePeriod: map[string]string{"memory.available": "1h"}})
		w.stale = 3 * time.Second
		w.runs("a 800")
		for _, at := range []struct {
			uses uint64
			want string
		}{
			{800, "map[memory.available:50 nodefs.available:140]"},
			{870, "map[memory.available:30 nodefs.available:70]"}, {945, "map[]"},
		} {
			clear(w.armed)
			w.uses["a"] = at.uses
			w.look(t.Context())
			for signal := range w.armed {
				w.armed[signal] >>= 20
			}
			if got := fmt.Sprint(w.armed); got != at.want {
				t.Errorf("with %d MiB in use the kernel was told %s, want %s", at.uses, got, at.want)
			}
		}
		time.Sleep(2 * time.Hour)
		families, err := w.cfg.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, family := range families {
			for _, one := range family.GetMetric() {
				of := family.GetName() + " " + one.GetLabel()[0].GetValue()
				if h := one.GetHistogram(); h != nil {
					of += fmt.Sprint(" ", h.GetSampleCount(), " of ", h.GetSampleSum(), "s")
				} else {
					of += fmt.Sprint(" ", one.GetCounter().GetValue())
				}
				got = append(got, of)
			}
		}
		const age = "kubelet_eviction_stats_age_seconds "
		want := []string{age + "memory.available 1 of 3s", age + "nodefs.available 1 of 3s",
			"kubelet_evictions memory.available 1"}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// TestReclaimable: what is removed before pods end depends on where images and writable layers are.
func TestReclaimable(t *testing.T) {
	one, both, images := layout{}, layout{images: true, containers: true}, layout{images: true}
	const all = "dead containers and unused images"
	for _, tc := range []struct {
		layout  layout
		signals string
		want    string
	}{
		{one, "nodefs imagefs containerfs", all},
		{both, "nodefs", ""}, {both, "imagefs containerfs", all},
		{images, "nodefs containerfs", "dead containers"}, {images, "imagefs", "unused images"},
		{one, "memory allocatableMemory pid", ""},
	} {
		for signal := range strings.FieldsSeq(tc.signals) {
			for _, of := range []string{".available", ".inodesFree"} {
				if got := reclaimable(Signal(signal+of), tc.layout).String(); got != tc.want {
					t.Errorf("%s%s with %+v: %q, want %q", signal, of, tc.layout, got, tc.want)
				}
			}
		}
	}
}

// TestRestart: what an earlier run was about to evict is awaited before another pod is chosen.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard: map[string]string{"memory.available": "100Mi"}})
		w.runs("a 300, b 650")
		w.lasts["b"] = time.Hour
		w.look(t.Context())
		again := &Manager{cfg: w.cfg, evicts: w.evicts, age: w.age}
		again.cfg.Last = func() (types.UID, Signal, bool) { return "b", MemoryAvailable, true }
		w.news()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- again.Run(ctx) }()
		time.Sleep(patience - time.Second)
		if said := w.news(); len(said) > 0 {
			t.Errorf("while b ends: %q", said)
		}
		time.Sleep(2 * time.Second)
		if len(w.news()) == 0 {
			t.Error("b does not end, and nobody else is chosen")
		}
		cancel()
		<-ended
		time.Sleep(2 * time.Hour) // pods that end late
	})
}
