package podworker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
)

// Volumes are brought up to date when they are due, after all else, and as often as they are due.
func TestVolumesAreUpdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		due := n.begun // as after a restart of the agent
		n.due = func() time.Time { return due }
		n.before = func(_ context.Context, a Action) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if a.Kind == UpdateVolumes {
				due = time.Now().Add(25 * time.Second)
			}
			return nil
		}
		n.Update(Desired{Pod: podOf("a", "Always web db")})
		n.at(time.Minute)
		n.expect(t, "0s a: CreateSandbox #0", "0s a: StartContainer web #0",
			"0s a: StartContainer db #0", "0s a: UpdateVolumes", "25s a: UpdateVolumes",
			"50s a: UpdateVolumes")
		n.mu.Lock()
		n.due = nil
		n.mu.Unlock()
		n.at(10 * time.Minute)
		n.expect(t)
		n.Update(Desired{Pod: podOf("a", "Always web db"), Stop: &Stop{}})
		n.mu.Lock()
		n.due = time.Now
		n.log = nil
		n.mu.Unlock()
		n.at(11 * time.Minute)
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.log) == 0 || strings.Contains(strings.Join(n.log, "\n"), "UpdateVolumes") {
			t.Errorf("a pod that ends has %q", n.log)
		}
	})
}

// An update that fails is tried again after its time, and what the pod does is not its matter.
func TestVolumesThatCannotBeUpdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		tried := 0
		n.due = func() time.Time { return n.begun }
		n.before = func(_ context.Context, a Action) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if a.Kind != UpdateVolumes {
				return nil
			}
			tried++
			return &cri.StartError{Reason: "FailedMount", Err: errors.New("gone"),
				RetryAt: time.Now().Add(time.Minute)}
		}
		n.Update(Desired{Pod: podOf("a", "Always web")})
		n.at(3*time.Minute + time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		if tried != 4 {
			t.Errorf("tried %d times in three minutes", tried)
		}
		if d := n.reports["a"].Decision; d.Problem.Reason != "" || len(d.Waiting) > 0 {
			t.Errorf("the pod has the problem %v, and waits for %v", d.Problem, d.Waiting)
		}
	})
}

// What failed for want of an object is tried again when that comes; other failures keep their time.
func TestRetryOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		err := cri.ConfigError(&cri.ObjectError{Err: errors.New("none")})
		n.before = func(_ context.Context, a Action) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if a.Kind != StartContainer || err == nil {
				return nil
			}
			n.log = append(n.log, time.Since(n.begun).String())
			return err
		}
		n.Update(Desired{Pod: podOf("a", "Always web")})
		n.at(2 * time.Second)
		n.Wake("a")
		n.at(3 * time.Second)
		n.Retry("a")
		n.Retry("nobody")
		n.at(4 * time.Second)
		n.expect(t, "0s a: CreateSandbox #0", "0s", "3s")
		n.mu.Lock()
		err = errors.New("something else")
		n.mu.Unlock()
		n.at(5 * time.Second)
		n.Retry("a")
		n.at(6 * time.Second)
		n.Retry("a")
		n.at(7 * time.Second)
		n.expect(t, "5s")
		n.mu.Lock()
		err = nil
		n.mu.Unlock()
		n.at(time.Minute)
		if len(n.log) != 1 {
			t.Errorf("then %q", n.log)
		}
	})
}

// An end that waits for a pause to be over goes on at once when that is.
func TestRetryOfAPausedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		tried := 0
		n.before = func(_ context.Context, a Action) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if a.Kind != CleanUp {
				return nil
			}
			if tried++; tried > 1 {
				return nil
			}
			return &cri.PausedError{Err: errors.New("the driver is away"), Until: time.Now().Add(time.Hour)}
		}
		pod := podOf("a", "Always web")
		n.Update(Desired{Pod: pod})
		n.at(2 * time.Second)
		n.Update(Desired{Pod: pod, Stop: &Stop{Grace: time.Second, Remove: true}})
		n.at(8 * time.Second)
		n.mu.Lock()
		if problem := n.reports["a"].Decision.Problem; tried != 1 || problem.Message != "the driver is away" {
			t.Errorf("tried %d times, the problem is %v", tried, problem)
		}
		n.mu.Unlock()
		n.Retry("a")
		n.at(9 * time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		if tried != 2 {
			t.Errorf("tried %d times after the pause", tried)
		}
	})
}
