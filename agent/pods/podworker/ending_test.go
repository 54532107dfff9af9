package podworker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// A pod that ended by itself does not run again when its spec changes: what it held may be
// another's.
func TestWorkersCompletedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.programs["job"] = []run{{time.Second, 0}}
		n.Update(Desired{Pod: podOf("a", "Never job")})
		n.at(time.Minute)
		if r := n.reports["a"]; r.Decision.State != Finished {
			t.Fatalf("the pod is in state %s", r.Decision.State)
		}
		n.log = nil
		n.Update(Desired{Pod: podOf("a", "Always job")})
		n.at(time.Hour)
		n.expect(t)
	})
}

// A shorter grace reaches the worker that removes the pod, and makes none where there is none.
func TestWorkersHasten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stopping["web"] = time.Hour
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(0)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(10 * time.Second)
		n.log = nil
		n.Hasten(Desired{Pod: pod, Stop: &Stop{Grace: 5 * time.Second, Remove: true}})
		n.at(time.Hour)
		n.expect(t,
			"15s a: StopContainers c2 in 5s",
			"15s a: StopSandboxes s1",
			"15s a: CleanUp",
			"15s a: RemovePod")
		n.log = nil
		n.Hasten(Desired{Pod: pod, Stop: &Stop{Grace: time.Second, Remove: true}})
		n.at(2 * time.Hour)
		n.expect(t)
		if diff := cmp.Diff([]types.UID{"a"}, n.gone); diff != "" {
			t.Errorf("gone (-want +got):\n%s", diff)
		}
	})
}

// A pod that runs is ended from what is known of it and of what was done, and is read in full once,
// after all of it was removed. One for which something was under way is read first.
func TestEndingPodIsReadOnce(t *testing.T) {
	for name, at := range map[string]struct {
		stop        time.Duration
		interrupted bool
		want        int
	}{"idle": {stop: 30 * time.Second, want: 1}, "just made": {want: 1},
		"under way": {interrupted: true, want: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				entered := make(chan struct{})
				n.before = func(ctx context.Context, a Action) error {
					if a.Kind != StartContainer {
						return nil
					}
					close(entered)
					time.Sleep(time.Second)
					if at.interrupted {
						return ctx.Err()
					}
					return nil
				}
				pod := podOf("a", "Always web")
				n.Update(Desired{Pod: pod})
				<-entered
				n.at(at.stop)
				before := n.observed
				n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Second, Remove: true}})
				n.at(time.Minute)
				if got := n.observed - before; got != at.want || n.recalled < 3 {
					t.Errorf("read %d times, recalled %d times", got, n.recalled)
				}
				if len(n.gone) != 1 {
					t.Errorf("gone: %v", n.gone)
				}
			})
		})
	}
}

// What the observer has read since an idle worker looked is not read again; without such news the
// worker looks itself.
func TestIdleWorkerTakesWhatWasRead(t *testing.T) {
	for name, test := range map[string]struct {
		stale bool
		want  int // full reads for an exit that was read, and none for the start after it
	}{"read since": {false, 0}, "not read since": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.programs["web"] = []run{{10 * time.Second, 1}, {}}
				n.Update(Desired{Pod: podOf("a", "Always web")})
				n.at(5 * time.Second)
				n.mu.Lock()
				n.stale = test.stale
				before := n.observed
				n.mu.Unlock()
				n.at(12 * time.Second) // the node wakes workers when something exits
				if got := n.observed - before; got != test.want {
					t.Errorf("read in full %d times, want %d", got, test.want)
				}
				if len(n.log) != 3 {
					t.Errorf("done: %q", n.log)
				}
			})
		})
	}
}
