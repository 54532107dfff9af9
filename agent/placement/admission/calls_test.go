package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// A plugin that hangs holds up its own pods; they keep their claim and are admitted when it
// answers.
func TestHangingPluginHoldsUpOnlyItsPods(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var hang atomic.Bool
		hang.Store(true)
		p := &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
			if !hang.Load() {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=3 example.com/gpu=2"), false)
		d.queue.Submit(pod("b", "cpu=3"), false)
		d.expect("b Admit")
		time.Sleep(2 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: no answer to Allocate yet from the device " +
			"plugin of " +
			"example.com/gpu")
		time.Sleep(9 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: the device plugin of example.com/gpu failed: " +
			"context deadline exceeded")
		if n := d.reworded.Load(); n != 0 { // another cause is news
			t.Errorf("%d outcomes were said in other words only, want none", n)
		}
		d.queue.Submit(pod("c", "cpu=2"), false)
		d.expect("c Reject: UnexpectedAdmissionError: Allocate failed due to not enough cpus " +
			"available to satisfy request: requested=2, available=1, which is unexpected")
		hang.Store(false)
		time.Sleep(20 * time.Second)
		d.expect("a Admit") // that it is called again is no news
	})
}

// Under a deadline that a plugin's call outlasts, the pod is rejected at the deadline.
func TestAHangingPluginDoesNotOutlastTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := hangs(30 * time.Second)
		p.offer("example.com/gpu", 4)
		d := open(t, dir, p, roomy(100))
		defer d.stop()
		for _, uid := range []string{"a", "b", "c", "d"} { // side by side, not one after the other
			d.queue.Submit(pod(uid, "example.com/gpu=1"), false)
		}
		time.Sleep(100 * time.Second)
		if said := d.outcomes(); len(said) != 4 || said["a"] != forPlugin {
			t.Fatalf("said %v, want all four to wait", said)
		}
		if calls := p.calls.Load(); calls != 4*4 {
			t.Errorf("%d calls in 100 s, want one after the other for each pod: 16", calls)
		}
		time.Sleep(20*time.Second + time.Millisecond)
		d.now("a Reject, b Reject, c Reject, d Reject")
	})
}

// A plugin that does not answer what it prefers is asked once for a pod.
func TestASilentPluginIsAskedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := hangs(0)
		p.offer("example.com/gpu", 9)
		p.prefers("example.com/gpu")
		d := open(t, dir, p, nil)
		defer d.stop()
		wide := pod("wide", "example.com/gpu=1")
		for i := range 3 {
			more := *wide.Spec.Containers[0].DeepCopy()
			more.Name = fmt.Sprint("more-", i)
			wide.Spec.Containers = append(wide.Spec.Containers, more)
		}
		d.queue.Submit(wide, false)
		time.Sleep(5*time.Second + time.Millisecond)
		d.now("wide Admit")
	})
}

// One deadline is all that a plugin costs which does not answer, however many pods stand in line.
func TestSilentPluginKeepsTheLineOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := hangs(0)
		p.offer("example.com/gpu", 8)
		p.prefers("example.com/gpu")
		var mu sync.Mutex
		var reported []string
		d := open(t, dir, p, func(c *Config) {
			c.Unadvised = func(pod *v1.Pod, key allocation.AskKey, err error) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, fmt.Sprintf("%s %s: %v", pod.Name, key.Container, err))
			}
		})
		defer d.stop()
		d.together(func() {
			for _, name := range []string{"a", "b", "c"} {
				d.queue.Submit(pod(name, "example.com/gpu=2"), false)
			}
		})
		time.Sleep(6 * time.Second)
		d.now("a Admit, b Admit, c Admit")
		mu.Lock()
		defer mu.Unlock()
		want := []string{"a main: context deadline exceeded",
			"b main: asked about default/a it said: context deadline exceeded",
			"c main: asked about default/a it said: context deadline exceeded"}
		if !slices.Equal(reported, want) {
			t.Errorf("told %q", reported)
		}
		for pod, want := range map[string]string{
			"a": "example.com/gpu of container main: context deadline exceeded",
			"c": "example.com/gpu of container main: asked about default/a it said: context deadline exceeded",
		} {
			record, _ := d.queue.Explained(t.Context(), "default", pod)
			if ignored := record.Remarks.Ignored; len(ignored) != 1 || ignored[0] != want ||
				!strings.Contains(record.Text(), want) {
				t.Errorf("the record of %s says that %q was ignored, want %q", pod, ignored, want)
			}
		}
	})
}

// A pod that is resized while Allocate runs for it is reported with the resources that were planned, and with
// the newest of its other fields.
func TestSpecThatChangesWhileAllocateRuns(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(context.Context, string, []string) error {
			time.Sleep(record.SlowAnswer / 2)
			return nil
		}}
		p.offer("example.com/gpu", 2)
		var admitted *v1.Pod
		d := open(t, dir, p, func(c *Config) {
			tell := c.Report
			c.Report = func(r report.Result) {
				if r.Outcome == decide.Admit {
					admitted = r.Pod
				}
				tell(r)
			}
		})
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
		synctest.Wait()
		newer := pod("a", "cpu=3 example.com/gpu=1")
		newer.Spec.Containers[0].Image = "newer"
		d.queue.Submit(newer, false)
		time.Sleep(record.SlowAnswer)
		d.expect("a Admit")
		c, held := admitted.Spec.Containers[0], d.store.State().Pods["a"].CPUs()
		if got := c.Resources.Limits.Cpu().String(); got != "2" || c.Image != "newer" || held.Size() != 2 {
			t.Errorf("admitted with %s CPUs and image %s, has CPUs %s", got, c.Image, held)
		}
	})
}

// hangs is a plugin that takes five seconds for what it prefers before it gives up, and so long for
// Allocate.
func hangs(allocate time.Duration) *plugins {
	until := func(ctx context.Context, d time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	p := &plugins{preferred: func(ctx context.Context) ([]string, error) {
		return nil, until(ctx, 5*time.Second)
	}}
	if allocate > 0 {
		p.allocate = func(ctx context.Context, _ string, _ []string) error {
			return until(ctx, allocate)
		}
	}
	return p
}

// A pod may go whose call was answered while the agent stops: the line has not taken that answer.
func TestCancelAnsweredCall(t *testing.T) {
	c := newCalls(Config{})
	c.start(t.Context(), "a", time.Time{}, func(context.Context) record.Event { return record.Looked{} })
	c.wait()
	for _, back := range c.done.Take() {
		if !c.take(back) {
			t.Error("its last call was not answered")
		}
	}
	c.cancel("a")
	c.cancel("nobody")
}
