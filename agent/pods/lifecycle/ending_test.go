package lifecycle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
)

// While a worker ends a pod, the pod's events wait for the worker's own reads. Without one the pod
// is read a moment later, unless it is gone.
func TestEventsOfAPodThatIsEnded(t *testing.T) {
	for name, test := range map[string]struct {
		// meanwhile runs after the event, before the delay ends.
		meanwhile func(*fake, *PLEG)
		want      int // reads
	}{
		"he reads it": {func(_ *fake, o *PLEG) {
			if _, err := o.Recheck(context.Background(), "p", cri.Made{}); err != nil {
				t.Error(err)
			}
		}, 1},
		"he does not": {func(*fake, *PLEG) {}, 1},
		"it is gone": {func(f *fake, o *PLEG) {
			f.remove("p")
			if _, err := o.Observe(context.Background(), "p"); err != nil {
				t.Error(err)
			}
			f.event("p", cri.EventDeleted)
		}, 1},
		"after the end": {func(f *fake, o *PLEG) {
			time.Sleep(settle)
			synctest.Wait()
			f.event("p", cri.EventStopped)
			synctest.Wait()
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.set("p", cri.ContainerRunning)
				o, stop := observe(t, f, Config{})
				defer stop()
				<-o.Synced()
				time.Sleep(5 * time.Second) // events are trusted: no list is due
				synctest.Wait()
				_, before, _ := f.counts()
				done := o.Ending("p")
				f.set("p", cri.ContainerExited)
				time.Sleep(time.Millisecond)
				f.event("p", cri.EventStopped)
				synctest.Wait()
				if _, n, _ := f.counts(); n != before {
					t.Errorf("read %d times at once", n-before)
				}
				done()
				time.Sleep(time.Millisecond)
				test.meanwhile(f, o)
				time.Sleep(2 * settle)
				synctest.Wait()
				if _, n, _ := f.counts(); n-before != test.want {
					t.Errorf("read %d times, want %d", n-before, test.want)
				}
				pod, known := o.Get("p")
				if known != (name != "it is gone") ||
					known && pod.Containers[0].State != cri.ContainerExited {
					t.Errorf("known: %t, %+v", known, pod)
				}
			})
		})
	}
}

// The removal of a container of an unknown pod causes no relist; the exit of one does.
func TestEventOfNobodysPod(t *testing.T) {
	for kind, want := range map[cri.EventType]int{cri.EventDeleted: 0, cri.EventStopped: 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			o, stop := observe(t, f, Config{})
			defer stop()
			<-o.Synced()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			before, _, _ := f.counts()
			f.emitter()(cri.Event{ContainerID: "x", Type: kind})
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			if lists, _, _ := f.counts(); lists-before != want {
				t.Errorf("%s: %d lists, want %d", kind, lists-before, want)
			}
		})
	}
}

// A sandbox that was stopped stays stopped, even if an earlier read ends afterwards.
func TestStoppedSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("p", cri.ContainerExited)
		o, stop := observe(t, f, Config{})
		defer stop()
		<-o.Synced()
		stale := o.cache.begin("p")
		older := f.look("p")
		time.Sleep(time.Millisecond)
		if pod := o.Stopped("p", []string{"s-p"}); pod.Sandboxes[0].Ready {
			t.Errorf("%+v", pod)
		}
		if pod, _ := o.cache.commit(stale, older); pod.Sandboxes[0].Ready {
			t.Errorf("an older read brought it back: %+v", pod)
		}
		if !f.truth("p").Sandboxes[0].Ready {
			t.Error("what was observed before was changed")
		}
	})
}
