package podworker

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/cri"
)

func TestGraceOnlyShrinks(t *testing.T) {
	w := newWorld(makePod("Always web"))
	w.until(time.Second)
	w.fault = func(Action) (error, bool) { // every stop is interrupted after a second
		w.now = w.now.Add(time.Second)
		return errors.New("interrupted"), false
	}
	var got []time.Duration
	for _, grace := range []time.Duration{20, 60, 10, 15, 0, 30} {
		w.want.Stop = &Stop{Grace: grace * time.Second}
		if !w.round() || w.last.Action.Kind != StopContainers {
			t.Fatalf("grace %v: no stop but %+v", grace, w.last)
		}
		got = append(got, w.last.Action.Grace)
	}
	want := []time.Duration{20, 19, 10, 9, 2, 2}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("graces (-want +got):\n%s", diff)
	}
}

func TestWaitingReasons(t *testing.T) {
	t.Run("crash loop", func(t *testing.T) {
		w := newWorld(makePod("Always web"))
		w.programs["web"] = []run{{time.Second, 1}}
		w.until(5 * time.Second)
		want := "web: CrashLoopBackOff: " +
			"back-off 10s restarting failed container=web pod=pod_ns(uid)"
		if got := w.waiting(); got != want {
			t.Errorf("waiting = %q, want %q", got, want)
		}
		if want := epoch.Add(12 * time.Second); !w.last.Wake.Equal(want) {
			t.Errorf("wake at %v, want %v", w.last.Wake, want)
		}
	})
	t.Run("start error with a time to try again", func(t *testing.T) {
		w := newWorld(makePod("Always web"))
		at := epoch.Add(42 * time.Second)
		w.fault = func(a Action) (error, bool) {
			if a.Kind != StartContainer {
				return nil, true
			}
			return &cri.StartError{
				Reason: cri.ReasonImagePullBackOff, Message: "m", RetryAt: at,
			}, false
		}
		w.until(5 * time.Second)
		if got, want := w.waiting(), "web: ImagePullBackOff: m"; got != want {
			t.Errorf("waiting = %q, want %q", got, want)
		}
		if !w.last.Wake.Equal(at) {
			t.Errorf("wake at %v, want %v", w.last.Wake, at)
		}
	})
	t.Run("until the end of a pod that never started", func(t *testing.T) {
		w := newWorld(makePod("Always web"))
		w.fault = func(a Action) (error, bool) {
			if a.Kind != StartContainer {
				return nil, true
			}
			return &cri.StartError{Reason: cri.ReasonImagePullBackOff, Message: "m"}, false
		}
		w.until(time.Second)
		w.want.Stop = &Stop{Grace: time.Second}
		for w.round() {
			if got, want := w.waiting(), "web: ImagePullBackOff: m"; got != want {
				t.Errorf("%s: waiting = %q, want %q", w.last.State, got, want)
			}
		}
		if w.last.State != Finished {
			t.Errorf("it comes to %s", w.last.State)
		}
	})
	t.Run("sandbox", func(t *testing.T) {
		w := newWorld(makePod("Always init | web"))
		w.fault = func(Action) (error, bool) { return errors.New("no network"), false }
		w.until(5 * time.Second)
		want := "init: PodInitializing: no network\nweb: PodInitializing: no network"
		if diff := cmp.Diff(want, w.waiting()); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
		if got := w.last.Problem.Reason; got != cri.ReasonCreatePodSandbox {
			t.Errorf("problem = %q", got)
		}
	})
	t.Run("the start after a back-off", func(t *testing.T) {
		w := newWorld(makePod("Always web"))
		w.programs["web"] = []run{{time.Second, 1}}
		var got []string
		w.fault = func(a Action) (error, bool) {
			if a.Kind == StartContainer {
				got = append(got, w.waiting())
				w.memory = newMemory(nil) // the agent begins anew, and knows as much
			}
			return nil, true
		}
		w.until(13 * time.Second)
		want := []string{"", "", // the first exit waits for nothing
			"web: CrashLoopBackOff: back-off 10s restarting failed container=web pod=pod_ns(uid)"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("waiting at each start (-want +got):\n%s", diff)
		}
	})
	t.Run("another try at once, as the pod has changed", func(t *testing.T) {
		w := newWorld(makePod("Always web"))
		failing := true
		w.fault = func(a Action) (error, bool) {
			if a.Kind == StartContainer && failing {
				return &cri.StartError{Reason: cri.ReasonImagePullBackOff, Message: "m"}, false
			}
			return nil, true
		}
		w.until(5 * time.Second)
		failing = false
		w.want.Pod = w.want.Pod.DeepCopy()
		w.want.Pod.Spec.Containers[0].Image = "other"
		if want := "web: ImagePullBackOff: m"; !w.round() || w.waiting() != want {
			t.Errorf("waiting = %q, want %q", w.waiting(), want)
		}
		if w.round(); w.waiting() != "" {
			t.Errorf("it was started, and waits: %q", w.waiting())
		}
	})
	t.Run("the end of what could not be started", func(t *testing.T) {
		w := newWorld(makePod("Always web"))
		w.fault = func(a Action) (error, bool) {
			if a.Kind == StartContainer {
				return &cri.StartError{Reason: cri.ReasonImagePullBackOff, Message: "m"}, false
			}
			return nil, true
		}
		w.until(5 * time.Second)
		w.want.Stop = &Stop{Grace: time.Second}
		if want := "web: ImagePullBackOff: m"; !w.round() || w.waiting() != want {
			t.Errorf("waiting = %q, want %q", w.waiting(), want)
		}
	})
}
