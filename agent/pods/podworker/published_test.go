package podworker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/internal/podtest"
)

// A pod that the node ends is not stopped before others know that it is not ready any more, or the
// least of a second and a quarter of its grace period has passed, which is a part of that. Its status
// says so first.
func TestToldBeforeItIsStopped(t *testing.T) {
	evicted := Stop{Grace: 30 * time.Second, Reason: "Evicted"}
	deleted := Stop{Grace: 30 * time.Second}
	hard, gone, removed := evicted, evicted, deleted
	hard.Grace, gone.Orphan, removed.Remove = 2*time.Second, true, true
	const never = time.Hour
	for name, test := range map[string]struct {
		stop      Stop
		static    bool
		published time.Duration // after the stop
		want      string
	}{
		"told at once":             {evicted, false, 0, "10s a: StopContainers c2 in 30s"},
		"told soon":                {evicted, false, 300 * time.Millisecond, "10.3s a: StopContainers c2 in 30s"},
		"never":                    {evicted, false, never, "11s a: StopContainers c2 in 29s"},
		"never, with little grace": {hard, false, never, "10.5s a: StopContainers c2 in 2s"},
		"deleted":                  {deleted, false, never, "10s a: StopContainers c2 in 30s"},
		"its manifest is gone":     {removed, true, never, "11s a: StopContainers c2 in 29s"},
		"nobody knows of it":       {gone, false, never, "10s a: StopContainers c2 in 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				pod := podOf("a", "Always web")
				if test.static {
					podtest.Source(source.FileSource)(pod)
				}
				n.Update(Desired{Pod: pod})
				n.at(10 * time.Second)
				n.mu.Lock()
				n.log, n.tells, n.published = nil, true, map[types.UID]bool{}
				n.mu.Unlock()
				if test.published == 0 {
					n.tell("a")
				}
				stop := test.stop
				n.Update(Desired{Pod: pod, Stop: &stop})
				if test.published > 0 && test.published != never {
					time.Sleep(test.published)
					n.tell("a")
				}
				n.at(15 * time.Second)
				n.mu.Lock()
				defer n.mu.Unlock()
				if diff := cmp.Diff(test.want, n.log[0]); diff != "" {
					t.Errorf("first action (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// tell has others know the newest status of a pod.
func (n *node) tell(uid types.UID) {
	n.mu.Lock()
	n.published[uid] = true
	n.mu.Unlock()
	n.Published(uid)
}

// A container that was told to stop gets its shorter grace at once, whoever knows of it.
func TestToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stopping["web"] = time.Hour
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(10 * time.Second)
		n.mu.Lock()
		n.log, n.tells = nil, true
		n.mu.Unlock()
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute}})
		n.at(20 * time.Second)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: 5 * time.Second, Reason: "Terminated"}})
		n.at(time.Minute)
		n.expect(t,
			"25s a: StopContainers c2 in 5s",
			"25s a: StopSandboxes s1",
			"25s a: CleanUp")
		if got := n.reports["a"].Stop; got.Reason != "Terminated" {
			t.Errorf("it ended for %+v", got)
		}
	})
}

// TestUnready: what counts as not ready, whatever its probes find.
func TestUnready(t *testing.T) {
	api, static := podOf("a", "Always web"), podOf("b", "Always web")
	podtest.Source(source.FileSource)(static)
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		stop *Stop
		want bool
	}{
		{"runs", api, nil, false}, {"deleted", api, &Stop{}, false},
		{"evicted", api, &Stop{Reason: "Evicted"}, true}, {"a static pod that runs", static, nil, false},
		{"a manifest that is gone", static, &Stop{Remove: true}, true},
		{"an orphan", static, &Stop{Remove: true, Orphan: true}, false},
	} {
		if got := (Desired{test.pod, test.stop}).Unready(); got != test.want {
			t.Errorf("%s: unready is %t", test.name, got)
		}
	}
}

// What others learn of a pod that has ended is no reason to look at it, and to say it again.
func TestToldOfAnEndedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := podOf("a", "Always web")
		n.mu.Lock()
		n.tells, n.published = true, map[types.UID]bool{}
		n.mu.Unlock()
		n.Update(Desired{Pod: pod})
		n.at(10 * time.Second)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Second, Reason: "Evicted"}})
		n.at(time.Minute)
		n.mu.Lock()
		before := n.rounds
		n.mu.Unlock()
		for range 3 {
			n.tell("a")
			synctest.Wait()
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.rounds != before {
			t.Errorf("the pod was looked at %d times", n.rounds-before)
		}
	})
}
