package admission

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Each decision comes with one plan, however often a pod was tried to be placed before, and with
// the error of what it was rejected for. A pod that runs already is not placed.
func TestDecisionsComeWithOnePlan(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 2)
		var tried []string
		d := open(t, dir, p, func(c *Config) {
			tell := c.Report
			c.Report = func(r report.Result) {
				if r.Tried != nil {
					tried = append(tried,
						fmt.Sprintf("%s %s: %d placed, error %t", r.Pod.Name, r.Outcome,
							len(r.Tried.Plan.Pod.Containers), r.Tried.Err != nil))
				}
				tell(r)
			}
		})
		defer d.stop()
		d.queue.Submit(pod("old", "cpu=2 example.com/gpu=2"), false)
		d.now("old Admit")
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("new", "cpu=2 example.com/gpu=1"), false)
		d.now("new " + forResources)
		for range 3 {
			p.offer("example.com/gpu", 2)
			d.queue.Poke()
			synctest.Wait()
		}
		d.queue.Release("old")
		d.now("new Admit")
		d.queue.Submit(pod("big", "cpu=2 example.com/gpu=2"), false)
		d.now("big Reject")
		p.set(devicemanager.Resource{Name: "example.com/gpu"})
		d.queue.Submit(pod("runs", "example.com/gpu=1"), true)
		d.now("runs Admit")
		const want = "old Admit: 1 placed, error false\n" +
			"new Admit: 1 placed, error false\n" +
			"big Reject: 0 placed, error true"
		if got := strings.Join(tried, "\n"); got != want {
			t.Errorf("tried:\n%s\nwant:\n%s", got, want)
		}
	})
}

// A pod that could not start is rejected for what it lacks, and not for a plan of before.
func TestPodThatLacksAnObjectComesWithoutAPlan(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p, n := &plugins{}, newNeeds()
		p.offer("example.com/gpu", 2)
		var last report.Result
		d := open(t, dir, p, func(c *Config) {
			tell := c.Report
			c.Needs, c.Wait = n, time.Minute
			c.Report = func(r report.Result) {
				last = r
				tell(r)
			}
		})
		defer d.stop()
		d.queue.Submit(pod("old", "example.com/gpu=2"), false)
		synctest.Wait()
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("new", "example.com/gpu=1"), false)
		synctest.Wait()
		n.set("new", lacksKey)
		d.queue.Release("old")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if last.Pod.Name != "new" || last.Reason != decide.ReasonNoObjects || last.Tried != nil {
			t.Errorf("%s is reported as %s with plan %v", last.Pod.Name, last.Reason, last.Tried)
		}
	})
}
