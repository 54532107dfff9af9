package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/cri"
)

func TestRelistPeriods(t *testing.T) {
	for _, c := range []struct {
		name     string
		noEvents bool
		wantMin  int
		wantMax  int
	}{
		// Two quick ones while the stream settles, then one per ten seconds.
		{"with events", false, 11, 14},
		{"without events", true, 99, 102},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.noEvent = c.noEvents
				_, stop := observe(t, f, Config{})
				defer stop()
				time.Sleep(100*time.Second + time.Millisecond)
				synctest.Wait()
				if n, _, _ := f.counts(); n < c.wantMin || n > c.wantMax {
					t.Errorf("%d relists in 100 s, want %d to %d", n, c.wantMin, c.wantMax)
				}
			})
		})
	}
}

func TestStreamEndMeansQuickRelistsUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		o, stop := observe(t, f, Config{})
		defer stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		f.set("p", cri.ContainerExited) // without an event
		f.end <- errors.New("gone")
		time.Sleep(time.Second)
		synctest.Wait()
		if _, ok := o.Get("p"); !ok {
			t.Error("a change was not seen one relist period after the stream ended")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, _, streams := f.counts(); streams != 2 {
			t.Errorf("%d streams were opened, want 2", streams)
		}
		before, _, _ := f.counts()
		time.Sleep(time.Minute)
		synctest.Wait()
		if after, _, _ := f.counts(); after-before > 7 {
			t.Errorf("%d relists in a minute with the stream back", after-before)
		}
	})
}

func TestStreamIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, stop := observe(t, f, Config{})
		defer stop()
		for range 8 { // 1+2+4+8+16+30+30+30 s
			f.end <- errors.New("gone")
		}
		synctest.Wait()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if _, _, streams := f.counts(); streams != 8 {
			t.Errorf("%d streams, want 8: the ninth only after 30 s", streams)
		}
	})
}

func TestEventsOfOnePodAreOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, gate := newFake(), make(chan struct{})
		f.set("p", cri.ContainerRunning)
		f.refresh = func(context.Context, types.UID) error { <-gate; return nil }
		o, stop := observe(t, f, Config{})
		defer stop()
		synctest.Wait() // the first read waits at the gate
		f.set("p", cri.ContainerExited)
		for range 50 {
			f.event("p", cri.EventStopped)
		}
		time.Sleep(time.Millisecond)
		close(gate)
		synctest.Wait()
		if _, reads, _ := f.counts(); reads != 2 {
			t.Errorf("%d reads, want 2: the one under way and one for all events", reads)
		}
		if p, _ := o.Get("p"); p.Containers[0].State != cri.ContainerExited {
			t.Errorf("container is %s", p.Containers[0].State)
		}
		if got := received(o); got["p"] == 0 || got["p"] > 2 {
			t.Errorf("changes %v, want p once or twice", got)
		}
	})
}

func TestWorkersOwnReadSparesTheEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("p", cri.ContainerRunning)
		o, stop := observe(t, f, Config{Readers: 1})
		defer stop()
		synctest.Wait()
		// The one reader is busy: the event waits, and the worker reads meanwhile.
		gate := make(chan struct{})
		f.refresh = func(_ context.Context, uid types.UID) error {
			if uid == "slow" {
				<-gate
			}
			return nil
		}
		f.set("slow", cri.ContainerRunning)
		f.event("slow", cri.EventStopped)
		synctest.Wait()
		f.event("p", cri.EventStopped)
		time.Sleep(time.Millisecond)
		if _, err := o.Observe(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		close(gate)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.reads["p"] != 2 { // the first picture and Observe
			t.Errorf("p was read %d times, want 2", f.reads["p"])
		}
	})
}

func TestTheOneWhoObservesIsNotTold(t *testing.T) {
	for name, test := range map[string]struct {
		read     func(*PLEG, context.Context, types.UID) (cri.Pod, error)
		reported bool
	}{
		"Observe": {(*PLEG).Observe, false},
		"Reread":  {(*PLEG).Reread, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				o, stop := observe(t, f, Config{})
				defer stop()
				synctest.Wait()
				f.set("p", cri.ContainerRunning)
				pod, err := test.read(o, t.Context(), "p")
				if err != nil || len(pod.Containers) != 1 {
					t.Fatalf("%s() = %+v, %v, want the container", name, pod, err)
				}
				synctest.Wait()
				select {
				case <-o.Changes():
					if !test.reported {
						t.Error("the change was told, but whom it concerns has seen it")
					}
				default:
					if test.reported {
						t.Error("the change was not told")
					}
				}
			})
		})
	}
}

func TestOlderReadNeverWins(t *testing.T) {
	for _, vanished := range []bool{false, true} {
		t.Run(fmt.Sprintf("vanished=%t", vanished), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, gate := newFake(), make(chan struct{})
				var reads atomic.Int32
				f.set("p", cri.ContainerRunning)
				f.refresh = func(context.Context, types.UID) error {
					if reads.Add(1) == 1 {
						<-gate
					}
					return nil
				}
				o, stop := observe(t, f, Config{})
				defer stop()
				synctest.Wait() // an old read of the running container is under way
				f.set("p", cri.ContainerExited)
				if vanished {
					f.remove("p")
				}
				if _, err := o.Reread(t.Context(), "p"); err != nil {
					t.Fatal(err)
				}
				close(gate)
				synctest.Wait()
				got, ok := o.Get("p")
				if vanished && ok {
					t.Errorf("the pod came back: %+v", got)
				}
				if !vanished && (!ok || got.Containers[0].State != cri.ContainerExited) {
					t.Errorf("the pod went back in time: %+v", got)
				}
			})
		})
	}
}

func TestHungReadDelaysOnlyItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for _, uid := range []types.UID{"a-hung", "b", "c", "d"} {
			f.set(uid, cri.ContainerRunning)
		}
		var healed atomic.Bool
		f.refresh = func(ctx context.Context, uid types.UID) error {
			if uid == "a-hung" && !healed.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		o, stop := observe(t, f, Config{Readers: 2, ReadTimeout: 20 * time.Second})
		defer stop()
		synctest.Wait()
		if n := len(o.All()); n != 3 {
			t.Errorf("%d pods are known while one hangs, want 3", n)
		}
		select {
		case <-o.Synced():
			t.Error("synced without one pod")
		default:
		}
		healed.Store(true)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if n := len(o.All()); n != 4 {
			t.Errorf("%d pods are known afterwards, want 4", n)
		}
		<-o.Synced()
	})
}

func TestVanishedPodChangesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("p", cri.ContainerRunning)
		o, stop := observe(t, f, Config{})
		defer stop()
		<-o.Synced()
		if got := received(o); got["p"] != 1 {
			t.Fatalf("changes %v, want p once", got)
		}
		f.remove("p")
		// The runtime does not know the container's pod any more.
		f.emitter()(cri.Event{ContainerID: "pa", Type: cri.EventDeleted})
		synctest.Wait()
		if got := received(o); got["p"] != 1 {
			t.Errorf("changes %v, want p once", got)
		}
		if p, ok := o.Get("p"); ok || p.UID != "p" || p.Running() {
			t.Errorf("Get = %+v, %t, want an empty pod", p, ok)
		}
		o.cache.mu.Lock()
		defer o.cache.mu.Unlock()
		if n := len(o.cache.entries); n != 0 {
			t.Errorf("%d entries are left in the cache", n)
		}
	})
}

func TestEventOfUnknownContainerBringsRelistForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		o, stop := observe(t, f, Config{})
		defer stop()
		time.Sleep(95 * time.Second) // in the middle of a long period
		f.set("new", cri.ContainerExited)
		f.emitter()(cri.Event{ContainerID: "whose", Type: cri.EventStopped})
		synctest.Wait()
		if _, ok := o.Get("new"); !ok {
			t.Error("the pod was not found")
		}
	})
}

func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.listErr = errors.New("runtime is down")
		o, stop := observe(t, f, Config{})
		defer stop()
		synctest.Wait()
		if err := o.Healthy(time.Now()); err == nil || !strings.Contains(err.Error(), "yet") {
			t.Errorf("never listed: %v", err)
		}
		f.mu.Lock()
		f.listErr = nil
		f.mu.Unlock()
		time.Sleep(2 * time.Second)
		if err := o.Healthy(time.Now()); err != nil {
			t.Errorf("listed: %v", err)
		}
		f.mu.Lock()
		f.listErr = errors.New("runtime is down")
		f.mu.Unlock()
		time.Sleep(4 * time.Minute)
		err := o.Healthy(time.Now())
		if err == nil || !strings.HasPrefix(err.Error(), "pleg was last seen active 4m") {
			t.Errorf("not listed for four minutes: %v", err)
		}
	})
}

func TestSlowReceiverLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		o, stop := observe(t, f, Config{})
		defer stop()
		synctest.Wait()
		states := []cri.ContainerState{cri.ContainerCreated, cri.ContainerRunning,
			cri.ContainerExited}
		for round := range 200 { // nobody receives; nothing may block or grow
			uid := types.UID(fmt.Sprintf("p%d", round%7))
			f.set(uid, states[round%3])
			f.event(uid, cri.EventStopped)
			time.Sleep(time.Millisecond)
		}
		f.remove("p3")
		f.event("p3", cri.EventDeleted)
		synctest.Wait()
		seen := map[types.UID]cri.Pod{}
		got := received(o)
		for uid := range got {
			seen[uid], _ = o.Get(uid)
		}
		for i := range 7 {
			uid := types.UID(fmt.Sprintf("p%d", i))
			if got[uid] == 0 || got[uid] > 2 {
				t.Errorf("%s changed %d times to the receiver", uid, got[uid])
			}
			if !sameFacts(seen[uid], f.truth(uid)) && len(f.truth(uid).Containers) > 0 {
				t.Errorf("%s is seen as %+v", uid, seen[uid])
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, registry := newFake(), metrics.NewKubeRegistry()
		f.set("p", cri.ContainerRunning, cri.ContainerExited)
		f.set("q", cri.ContainerRunning)
		o, stop := observe(t, f, Config{Registry: registry})
		defer stop()
		synctest.Wait()
		received(o)
		want := `
# HELP kubelet_evented_pleg_connection_success_count [ALPHA] Container event streams that began.
# TYPE kubelet_evented_pleg_connection_success_count counter
kubelet_evented_pleg_connection_success_count 1
# HELP kubelet_running_containers [ALPHA] Containers that the runtime has, by state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} 0
kubelet_running_containers{container_state="exited"} 1
kubelet_running_containers{container_state="running"} 2
kubelet_running_containers{container_state="unknown"} 0
# HELP kubelet_running_pods [ALPHA] Pods that have a ready sandbox.
# TYPE kubelet_running_pods gauge
kubelet_running_pods 2
`
		err := testutil.GatherAndCompare(registry, strings.NewReader(want),
			"kubelet_running_containers", "kubelet_running_pods",
			"kubelet_evented_pleg_connection_success_count")
		if err != nil {
			t.Error(err)
		}
		if _, err := New(Config{Client: f, Registry: registry}); err == nil {
			t.Error("a second PLEG registered the same metrics")
		}
	})
}
