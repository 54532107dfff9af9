package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
)

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
