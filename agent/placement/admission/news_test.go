package admission

import (
	"sync/atomic"
	"testing"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// What plugins said before the first pod came is no news to it, and devices that a pod without room
// has no use for are none either.
func TestNothingIsPlannedInVain(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 4)
		var planned atomic.Int64
		d := open(t, dir, p, func(c *Config) {
			roomy(100)(c)
			c.Handlers = []decide.Handler{func(decide.Attempt) *decide.Refusal { // called once for each plan
				planned.Add(1)
				return nil
			}}
		})
		defer d.stop()
		d.queue.Submit(pod("old", "example.com/gpu=4"), false)
		d.now("old Admit")
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("new", "example.com/gpu=2"), false)
		d.now("new " + forResources)
		for what, change := range map[string]func(){
			"no change":        func() {},
			"one more, of two": func() { p.offer("example.com/gpu", 5) },
			"another resource": func() { p.offer("example.com/nic", 5) },
		} {
			planned.Store(0)
			change()
			d.queue.Poke()
			d.now("")
			if n := planned.Load(); n != 0 {
				t.Errorf("%s: %d plans, want none", what, n)
			}
		}
		planned.Store(0)
		p.offer("example.com/gpu", 6)
		d.queue.Poke()
		d.now("new Admit")
		if n := planned.Load(); n != 1 {
			t.Errorf("two more devices: %d plans, want 1", n)
		}
	})
}
