package admission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// explained is the text of the explanation of a pod, "none" without one.
func (d *desk) explained(name string) string {
	r, ok := d.queue.Explained(context.Background(), "default", name)
	if !ok {
		return "none"
	}
	return r.Text()
}

func expectParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the explanation lacks %q:\n%s", part, text)
		}
	}
}

func TestExplanationFollowsTheOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
		synctest.Wait()
		expectParts(t, d.explained("a"), "Pod default/a: admitted",
			"main: 2 exclusive CPUs (gets 1-2)", "1 example.com/gpu (gets d0)",
			"exclusive CPUs: 7 of 7", "2 of 2 on no node in particular")

		d.queue.Submit(pod("b", "cpu=1 example.com/gpu=2"), false)
		synctest.Wait()
		expectParts(t, d.explained("b"), "Pod default/b: rejected, UnexpectedAdmissionError",
			"2 needed, 1 free", "container main with 1 example.com/gpu instead of 2")
		d.queue.Release("b")
		synctest.Wait()
		if got := d.explained("b"); got != "none" {
			t.Errorf("the explanation outlives its pod:\n%s", got)
		}

		d.queue.Leaving("a", false)
		d.queue.Submit(pod("c", "cpu=1 example.com/gpu=2"), false)
		synctest.Wait()
		expectParts(t, d.explained("c"), "Pod default/c: waiting, WaitingForResources",
			"the pod as it is, once other pods have ended")
		d.queue.Release("a")
		synctest.Wait()
		text := d.explained("c")
		expectParts(t, text, "Pod default/c: admitted", "(gets d0,d1)")
		if strings.Contains(text, "It would fit") || strings.Contains(text, "in the way") {
			t.Errorf("an admitted pod is told what would fit:\n%s", text)
		}
	})
}

func TestExplanationOfWhatIsNotPlanned(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 1)
		p.allocate = func(context.Context, string, []string) error { return errors.New("no luck") }
		d := open(t, dir, p, func(c *Config) {
			c.Handlers = []decide.Handler{func(a decide.Attempt) *decide.Refusal {
				if a.Pod.Name == "bad" {
					return &decide.Refusal{Reason: "SysctlForbidden", Message: "not this one"}
				}
				return nil
			}}
		})
		defer d.stop()
		d.queue.Submit(pod("bad", "cpu=2"), false)
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		synctest.Wait()
		expectParts(t, d.explained("bad"), "rejected, SysctlForbidden", "not this one",
			"main: 2 exclusive CPUs\n")
		expectParts(t, d.explained("a"), "rejected, UnexpectedAdmissionError", "no luck")
	})
}

// A pod that goes on waiting for the same is not planned for again and again: its record is that
// of when the outcome was said.
func TestExplanationIsMadeOncePerOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		synctest.Wait()
		before := d.explained("a")
		expectParts(t, before, "waiting, WaitingForDevicePlugin")
		time.Sleep(time.Second) // of the bubble
		d.queue.Poke()
		synctest.Wait()
		if after := d.explained("a"); after != before {
			t.Errorf("explained anew:\n%s\nbefore:\n%s", after, before)
		}
	})
}

// What is free for a pod that waits is told as of the moment that somebody asks.
func TestFreeIsOfTheMomentForWhoWaits(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 4)
		d := open(t, dir, p, nil)
		defer d.stop()
		for _, name := range []string{"a", "b", "c"} {
			d.queue.Submit(pod(name, "cpu=1 example.com/gpu=1"), false)
		}
		synctest.Wait()
		d.queue.Leaving("a", false)
		d.queue.Leaving("b", false)
		d.queue.Submit(pod("waits", "cpu=1 example.com/gpu=2"), false)
		synctest.Wait()
		expectParts(t, d.explained("waits"), "waiting", "Free now", "gpu: 1 of 4")
		expectParts(t, d.explained("c"), "admitted", "Free when that was decided", "gpu: 2 of 4")
		p.offer("example.com/gpu", 3)
		d.queue.Poke()
		synctest.Wait()
		expectParts(t, d.explained("waits"), "waiting", "Free now", "gpu: 0 of 3")
		expectParts(t, d.explained("c"), "Free when that was decided", "gpu: 2 of 4")

		s, err := d.queue.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, free := range s.Free() {
			lines = append(lines, free.String())
		}
		expectParts(t, strings.Join(lines, "\n"), "exclusive CPUs: 4 of 7", "gpu: 0 of 3")
	})
}
