package admission

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/internal/podtest"
)

func critical(uid, limits string, priority int32) *v1.Pod {
	return pod(uid, limits, podtest.Priority(priority))
}

// preemptions opens a desk where those who make way are told of.
func preemptions(t *testing.T, dir string, change func(*Config)) *desk {
	var d *desk
	d = open(t, dir, &plugins{}, func(c *Config) {
		c.Preempt = func(p report.Preemption) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.said = append(d.said, fmt.Sprintf("%s goes for %s: %s", p.Victim.UID, p.Critical.UID,
				p.Resource))
		}
		if change != nil {
			change(c)
		}
	})
	return d
}

const makeWay = "; pods that make way for it hold what is missing"

// A critical pod has others end, once each, and waits until they are gone, also where no pod waits.
func TestPreemption(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := preemptions(t, dir, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=3500m"), false)
		d.queue.Submit(pod("b", "cpu=3500m"), false)
		d.queue.Submit(critical("top", "cpu=4", 2_000_001_000), false)
		const short = "OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: "
		d.expect("a Admit", "b Admit", "a goes for top: cpu", "b goes for top: cpu",
			"top Wait: WaitingForResources: "+strings.TrimPrefix(short, "OutOfcpu: ")+
				"7000, capacity: 7000"+makeWay)
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
