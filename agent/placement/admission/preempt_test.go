package admission

import (
	"fmt"
	"testing"

	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/internal/podtest"
)

// A critical pod has others end, once each, and waits until they are gone, also where no pod waits.
func TestPreemption(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var d *desk
		d = open(t, dir, &plugins{}, func(c *Config) {
			c.Wait = 0
			c.Preempt = func(p report.Preemption) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.said = append(d.said, fmt.Sprintf("%s goes for %s: %s", p.Victim.UID, p.Critical.UID, p.Resource))
			}
		})
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=3500m"), false)
		d.queue.Submit(pod("b", "cpu=3500m"), false)
		d.queue.Submit(pod("top", "cpu=4", podtest.Priority(2_000_001_000)), false)
		d.expect("a Admit", "b Admit", "a goes for top: cpu", "b goes for top: cpu",
			"top Wait: WaitingForResources: Node didn't have enough resource: cpu, requested: 4000, used: "+
				"7000, capacity: 7000; pods that make way for it hold what is missing")
		d.queue.Leaving("a", false)
		d.queue.Submit(pod("c", "cpu=3500m"), false)
		d.queue.Leaving("b", false)
		d.queue.Release("a")
		d.expect("c Reject: OutOfcpu: Node didn't have enough resource: cpu, requested: 3500, " +
			"used: 4000, capacity: 7000")
		d.queue.Release("b")
		d.expect("top Admit")
	})
}
