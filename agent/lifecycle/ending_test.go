package lifecycle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
)

// While somebody ends a pod, its events wait for what he reads himself; what he does not read is
// read a moment later, and of what is gone nothing is.
func TestEventsOfAPodThatIsEnded(t *testing.T) {
	for name, test := range map[string]struct {
		// meanwhile is done after the event and before it has waited long enough.
		meanwhile func(*fake, *Observer)
		want      int // reads
	}{
		"he reads it": {func(_ *fake, o *Observer) {
			if _, err := o.Recheck(context.Background(), "p", cri.Made{}); err != nil {
				t.Error(err)
			}
		}, 1},
		"he does not": {func(*fake, *Observer) {}, 1},
		"it is gone": {func(f *fake, o *Observer) {
			f.remove("p")
			if _, err := o.Observe(context.Background(), "p"); err != nil {
				t.Error(err)
			}
			f.event("p", cri.EventDeleted)
		}, 1},
		"after the end": {func(f *fake, o *Observer) {
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

// What has gone without anybody knowing whose it was is no reason for a list; what has stopped is.
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

// A sandbox that was stopped is known to be, and what was read before that does not bring it back.
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
