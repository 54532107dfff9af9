package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
)

// A pod that is resized while Allocate runs for it is admitted with the resources that were planned,
// and others of its fields are the newest; if Allocate fails, it is planned as it is then.
func TestSpecThatChangesWhileAllocateRuns(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		cpus string
		said []string
	}{
		"admitted": {nil, "2", []string{"a Admit"}},
		"tried again": {status.Error(codes.Unavailable, "away"), "3", []string{"a Wait: " +
			"WaitingForDevicePlugin: the device plugin of example.com/gpu failed: rpc error: code = " +
			"Unavailable desc = away", "a Admit"}},
		"refused": {errors.New("no"), "", []string{"a Reject: UnexpectedAdmissionError: Allocate failed " +
			"due to no, which is unexpected"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				first := true
				p := &plugins{allocate: func(context.Context, string, []string) error {
					if !first {
						return nil
					}
					first = false
					time.Sleep(record.SlowAnswer / 2)
					return test.err
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
				time.Sleep(10 * time.Second)
				d.expect(test.said...)
				if test.cpus == "" {
					return
				}
				c := admitted.Spec.Containers[0]
				held := d.store.State().Pods["a"].Containers["main"].CPUs()
				if got := c.Resources.Limits.Cpu().String(); got != test.cpus || c.Image != "newer" ||
					held.Size() != int(test.cpus[0]-'0') {
					t.Errorf("admitted with %s CPUs and image %s, has CPUs %s", got, c.Image, held)
				}
				// What is counted is what it was admitted with, also when it is submitted once more.
				d.queue.Submit(newer, false)
				d.expect()
				e := d.queue.admitter.line.Find("a")
				if cpus := e.Requests.Cpu().String(); cpus != test.cpus {
					t.Errorf("%s CPUs are counted", cpus)
				}
			})
		})
	}
}
