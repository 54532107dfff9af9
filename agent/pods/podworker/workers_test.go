package podworker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/podtest"
)

func TestWorkersBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.programs["web"] = []run{{time.Second, 1}, {time.Second, 1}, {time.Second, 1}, {}}
		n.Update(Desired{Pod: podOf("a", "Always web")})
		n.at(time.Hour)
		n.expect(t,
			"0s a: CreateSandbox #0",
			"0s a: StartContainer web #0",
			"1s a: StartContainer web #1",
			"12s a: StartContainer web #2",
			"12s a: RemoveContainers c2",
			"33s a: StartContainer web #3",
			"33s a: RemoveContainers c3")
	})
}

func TestWorkersShrinkingGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stopping["web"] = time.Hour
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(0)
		n.log = nil
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Reason: "Evicted", OwnLimit: true}})
		n.at(10 * time.Second)
		n.expect(t) // it is being stopped
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: 2 * time.Minute}})
		n.at(11 * time.Second)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Hour, Reason: "Other"}})
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: 5 * time.Second, Remove: true}})
		n.at(time.Hour)
		n.expect(t,
			"16s a: StopContainers c2 in 5s",
			"16s a: StopSandboxes s1",
			"16s a: CleanUp",
			"16s a: RemovePod")
		if r := n.reports["a"]; r.Stop.Reason != "Evicted" || !r.Stop.OwnLimit || r.Decision.State != Finished {
			t.Errorf("last report %+v with stop %+v", r, r.Stop)
		}
		if diff := cmp.Diff([]types.UID{"a"}, n.gone); diff != "" {
			t.Errorf("gone (-want +got):\n%s", diff)
		}
		if known := n.Known(); len(known) > 0 {
			t.Errorf("still known: %v", known)
		}
	})
}

// A stop does not wait for what is being done.
func TestWorkersStopInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.before = func(ctx context.Context, a Action) error {
			if a.Kind == StartContainer { // an image that does not come
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(time.Minute)
		n.Update(Desired{Pod: pod}) // an update that stops nothing interrupts nothing
		n.at(2 * time.Minute)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(time.Hour)
		n.expect(t,
			"0s a: CreateSandbox #0",
			"2m0s a: StopSandboxes s1",
			"2m0s a: CleanUp",
			"2m0s a: RemovePod")
	})
}

// What was decided before a stop arrived is not done after it.
func TestWorkersStopOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := podOf("a", "Always web")
		n.during = sync.OnceFunc(func() {
			n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Remove: true}})
		})
		n.Update(Desired{Pod: pod})
		n.at(time.Minute)
		n.expect(t, "0s a: CleanUp")
	})
}

// A static pod waits for no pod of the API server of its name, nor that for it.
func TestStaticPodOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a, b, c := podOf("a", "Always web"), podOf("b", "Always web"), podOf("c", "Always web")
		for _, static := range []*v1.Pod{b, c} {
			podtest.Source("file")(static)
		}
		for _, pod := range []*v1.Pod{a, b, c} {
			n.Update(Desired{Pod: pod})
		}
		n.at(time.Minute)
		want := "waiting for pod b of the same name to end"
		if got := n.reports["c"].Decision.Waiting["web"].Message; got != want {
			t.Errorf("a second static one waits: %q, want %q", got, want)
		}
		for _, uid := range []types.UID{"a", "b"} {
			if waits := n.reports[uid].Decision.Waiting; len(waits) > 0 {
				t.Errorf("%s waits: %v", uid, waits)
			}
		}
	})
}

func TestWorkersSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stopping["web"] = 10 * time.Second
		a, b, c := podOf("a", "Always web"), podOf("b", "Always web"), podOf("c", "Always web")
		n.Update(Desired{Pod: a})
		n.at(0)
		n.Update(Desired{Pod: b})
		n.at(time.Second)
		n.Update(Desired{Pod: c})
		n.Update(Desired{Pod: a, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(5 * time.Second)
		want := "waiting for pod a of the same name to end"
		if got := n.reports["b"].Decision.Waiting["web"].Message; got != want {
			t.Errorf("b waits: %q, want %q", got, want)
		}
		// The next one never ran.
		n.Update(Desired{Pod: b, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(time.Minute)
		n.expect(t,
			"0s a: CreateSandbox #0",
			"0s a: StartContainer web #0",
			"5s b: CleanUp",
			"11s a: StopContainers c2 in 1m0s",
			"11s a: StopSandboxes s1",
			"11s a: CleanUp",
			"11s a: RemovePod",
			"11s c: CreateSandbox #0",
			"11s c: StartContainer web #0")
	})
}

// A stop stays a stop until the pod is gone; after that the pod may come again.
func TestWorkersReAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stopping["web"] = 10 * time.Second
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(0)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(time.Second)
		n.Update(Desired{Pod: pod})
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Hour}}) // nor does it stay now
		n.at(time.Minute)
		n.expect(t,
			"0s a: CreateSandbox #0",
			"0s a: StartContainer web #0",
			"10s a: StopContainers c2 in 1m0s",
			"10s a: StopSandboxes s1",
			"10s a: CleanUp",
			"10s a: RemovePod")
		if len(n.Known()) > 0 || !slices.Equal(n.gone, []types.UID{"a"}) {
			t.Errorf("known %q, gone %q", n.Known(), n.gone)
		}
		n.Update(Desired{Pod: pod})
		n.at(2 * time.Minute)
		n.expect(t, "1m0s a: CreateSandbox #0", "1m0s a: StartContainer web #0")
	})
}

// A pod that is terminated leaves its name to the next one and its records in the runtime, also
// when it is looked at again, until it is to be removed.
func TestWorkersTerminate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(0)
		n.Update(Desired{Pod: podOf("b", "Always web")})
		n.at(time.Second)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute}})
		n.at(time.Minute)
		n.Wake("a")
		n.at(2 * time.Minute)
		if r := n.reports["a"]; r.Decision.State != Finished || len(r.Observed.Containers) != 1 ||
			len(n.gone) > 0 {
			t.Errorf("gone %q, last report %+v", n.gone, r)
		}
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(time.Hour)
		n.expect(t,
			"0s a: CreateSandbox #0",
			"0s a: StartContainer web #0",
			"1s a: StopContainers c2 in 1m0s",
			"1s a: StopSandboxes s1",
			"1s a: CleanUp",
			"1s b: CreateSandbox #0",
			"1s b: StartContainer web #0",
			"2m0s a: RemovePod")
		if !slices.Equal(n.gone, []types.UID{"a"}) || !slices.Equal(n.Known(), []types.UID{"b"}) {
			t.Errorf("known %q, gone %q", n.Known(), n.gone)
		}
	})
}

// The end of the agent is not the end of its pods; another agent takes them over as they are.
func TestWorkersLeavePodsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := podOf("a", "Always side~ | web db")
		n.Update(Desired{Pod: pod})
		n.at(time.Minute)
		n.stop()
		before := n.machines["a"].state()
		n.log = nil
		next := newNode(t)
		next.machines = n.machines
		next.Update(Desired{Pod: pod})
		next.at(time.Hour)
		n.expect(t)
		next.expect(t)
		if after := n.machines["a"].state(); after != before {
			t.Errorf("pod is now\n%s\nand was\n%s", after, before)
		}
	})
}

func TestWorkersCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.programs["job"] = []run{{time.Second, 0}}
		pod := podOf("a", "OnFailure job")
		n.Update(Desired{Pod: pod})
		n.at(time.Minute)
		if state := n.reports["a"].Decision.State; state != Finished || len(n.gone) > 0 {
			t.Errorf("state %s, gone %v", state, n.gone)
		}
		n.Update(Desired{Pod: podOf("b", "Always web")}) // same name, which is free now
		n.at(2 * time.Minute)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Minute, Remove: true}})
		n.at(3 * time.Minute)
		n.expect(t,
			"0s a: CreateSandbox #0",
			"0s a: StartContainer job #0",
			"1s a: StopSandboxes s1",
			"1s a: CleanUp",
			"1m0s b: CreateSandbox #0",
			"1m0s b: StartContainer web #0",
			"2m0s a: RemovePod")
	})
}

// A runtime may answer that a sandbox was stopped before its lists say so: of a pod that has ended
// that is no failure.
func TestWorkersBelieveAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.programs["job"] = []run{{time.Second, 1}}
		n.Update(Desired{Pod: podOf("a", "Never job")})
		n.at(500 * time.Millisecond)
		n.late = true
		n.at(time.Minute)
		if r := n.reports["a"]; r.Decision.State != Finished || r.Decision.Problem.Reason != "" {
			t.Errorf("last report %+v", r)
		}
		n.expect(t,
			"0s a: CreateSandbox #0",
			"0s a: StartContainer job #0",
			"1s a: StopSandboxes s1",
			"1s a: CleanUp")
	})
}

func TestWorkersTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		broken := true
		n.before = func(_ context.Context, a Action) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if a.Kind == StartContainer && broken {
				n.log = append(n.log, "tried")
				return errors.New("broken")
			}
			return nil
		}
		n.Update(Desired{Pod: podOf("a", "Always web")})
		n.at(9 * time.Second)
		for range 10 {
			n.Wake("a") // does not make it try sooner
		}
		n.at(9500 * time.Millisecond)
		n.expect(t, "0s a: CreateSandbox #0", "tried")
		n.at(16 * time.Second)
		n.expect(t, "tried")
		changed := podOf("a", "Always web")
		changed.Spec.Containers[0].Image = "repaired"
		n.Update(Desired{Pod: changed})
		n.mu.Lock()
		broken = false
		n.mu.Unlock()
		n.at(16 * time.Second)
		n.expect(t, "16s a: StartContainer web #0")
	})
}

func TestWorkersBlindAndLiedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.blind, n.lying = true, true
		n.Update(Desired{Pod: podOf("a", "Always web")})
		n.at(time.Minute)
		if n.reports["a"].Err == nil || n.observed < 7 || n.observed > 9 {
			t.Errorf("%d observations in a minute, last report %+v", n.observed, n.reports["a"])
		}
		n.mu.Lock()
		n.blind = false
		n.mu.Unlock()
		n.at(2 * time.Minute)
		if len(n.log) < 2 || len(n.log) > 7 {
			t.Errorf("an action without effect was done %d times in a minute", len(n.log))
		}
		n.mu.Lock()
		n.lying, n.log = false, nil
		n.mu.Unlock()
		n.at(3 * time.Minute)
		if len(n.log) != 2 {
			t.Errorf("actions %q", n.log)
		}
	})
}

func TestWorkersCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(time.Second)
		n.mu.Lock()
		n.observed = 0
		for range 1000 {
			n.Wake("a")
			n.Update(Desired{Pod: pod})
		}
		n.mu.Unlock() // a first look may have begun before
		n.at(2 * time.Second)
		if n.observed > 2 {
			t.Errorf("looked %d times after one burst", n.observed)
		}
		n.Wake("unknown")
	})
}

// Many pods that come and go at once: all that is not desired in the end is gone, all else runs.
func TestWorkersManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.programs["init"] = []run{{time.Second, 0}}
		n.stopping["web"] = 3 * time.Second
		var updates sync.WaitGroup
		for i := range 40 {
			updates.Go(func() {
				pod := podOf(fmt.Sprintf("pod%02d", i), "Always init side~ | web")
				pod.Name = fmt.Sprintf("name%d", i/4) // four of a name
				for round := range 3 {
					n.Update(Desired{Pod: pod})
					time.Sleep(time.Duration(i*round) * 100 * time.Millisecond)
					n.Update(Desired{Pod: pod, Stop: &Stop{Grace: 5 * time.Second, Remove: true}})
					for slices.Contains(n.Known(), pod.UID) {
						time.Sleep(time.Second)
					}
				}
				if i%4 == 0 {
					n.Update(Desired{Pod: pod})
				}
			})
		}
		updates.Wait()
		n.at(time.Hour)
		if known := n.Known(); len(known) != 10 {
			t.Errorf("known: %v", known)
		}
		for uid, m := range n.machines {
			if len(m.broken) > 0 {
				t.Errorf("pod %s: broken %q", uid, m.broken)
			}
			runs := alive(m.seen)
			if want := slices.Contains(n.Known(), uid); runs != want {
				t.Errorf("pod %s runs: %v, want %v", uid, runs, want)
			}
		}
	})
}
