package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
)

// A pod whose sandbox is alive is admitted at once, whatever has changed since it was placed.
func TestWhatRunsIsLetRun(t *testing.T) {
	const (
		runsOn = "a Admit: AdoptedWithoutResources: the pod was running before and runs on with " +
			"what is recorded as its own; "
		lacksAll = "it lacks 2 exclusive CPUs of container main, 1 example.com/gpu of container main; "
		tooMany  = "no more is to be had: UnexpectedAdmissionError: Allocate failed due to "
		anew     = "; to have it placed anew, delete and create it again"
	)
	hardware := func(change func(*machine.Hardware)) func(*Config) {
		return func(c *Config) {
			h := c.Hardware()
			h.Allocatable = h.Allocatable.DeepCopy()
			change(&h)
			c.Hardware = func() machine.Hardware { return h }
		}
	}
	noCPUs := hardware(func(h *machine.Hardware) { h.CPUs = nil })
	for name, test := range map[string]struct {
		before, now func(*Config)
		lost        bool // the state file
		plugin      func(*plugins)
		request     string // "": two CPUs and a device
		want        string
		cpus        int // that it holds in the end
	}{
		"nothing": {want: "a Admit", cpus: 2},
		"its plugin is away": {
			plugin: func(p *plugins) { p.inventory.Store(nil) },
			want:   "a Admit", cpus: 2,
		},
		"a check refuses it now": {
			now: func(c *Config) {
				c.Handlers = []Handler{func(*v1.Pod) *allocation.Rejection {
					return &allocation.Rejection{Reason: "SysctlForbidden"}
				}}
			},
			lost: true, want: "a Admit", cpus: 2,
		},
		"the node is too small now": {
			now: hardware(func(h *machine.Hardware) {
				h.Allocatable[v1.ResourceMemory] = resource.MustParse("1Mi")
			}),
			request: "cpu=500m",
			want:    "a Admit",
		},
		"CPUs are exclusive now": {
			before: noCPUs,
			want:   runsOn + "it lacks 2 exclusive CPUs of container main" + anew,
		},
		"CPUs are exclusive now, and there are some": {
			before: noCPUs, request: "cpu=3",
			want: "a Admit", cpus: 3,
		},
		"CPUs are shared now": {now: noCPUs, want: "a Admit", cpus: 2},
		"the record is lost":  {lost: true, want: "a Admit", cpus: 2},
		"the record is lost and its plugin is away": {
			lost: true, plugin: func(p *plugins) { p.inventory.Store(nil) },
			want: runsOn + lacksAll + "no more is to be had: no device plugin has registered " +
				"example.com/gpu" + anew,
		},
		"the record is lost and there are too few devices": {
			lost: true, plugin: func(p *plugins) { p.offer("example.com/gpu", 0) },
			want: runsOn + lacksAll + tooMany + "no healthy devices present; cannot allocate " +
				"unhealthy devices example.com/gpu, which is unexpected" + anew,
		},
		"the record is lost and its plugin says no": {
			lost: true, plugin: func(p *plugins) {
				p.allocate = func(context.Context, string, []string) error { return errors.New("no") }
			},
			want: runsOn + lacksAll + "no more is to be had: no" + anew,
		},
	} {
		for _, wait := range []time.Duration{0, 2 * time.Minute} {
			t.Run(name+", wait "+wait.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, dir string) {
					p := &plugins{}
					p.offer("example.com/gpu", 1)
					if test.request == "" {
						test.request = "cpu=2 example.com/gpu=1"
					}
					d := open(t, dir, p, test.before)
					d.queue.Submit(pod("a", test.request), false)
					d.expect("a Admit")
					d.stop()
					if test.lost {
						dir = t.TempDir()
					}
					if test.plugin != nil {
						test.plugin(p)
					}
					d = open(t, dir, p, func(c *Config) {
						c.Wait = wait
						if test.now != nil {
							test.now(c)
						}
					})
					defer d.stop()
					d.queue.Submit(pod("a", test.request), true)
					d.expect(test.want)
					if n := d.store.State().Pods["a"].CPUs().Size(); n != test.cpus {
						t.Errorf("it holds %d CPUs, want %d", n, test.cpus)
					}
					d.queue.Release("a")
					synctest.Wait()
					if n := len(d.store.State().Pods); n != 0 {
						t.Errorf("%d pods in the store after its release, want none", n)
					}
				})
			})
		}
	}
}

// A plugin that hangs when a lost record is made good holds up that pod as long as one call takes;
// the pod is not said to wait. Those who came for the CPUs meanwhile are not told wrong.
func TestAHangingPluginDoesNotStopWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := hangs(10 * time.Second)
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=5 example.com/gpu=1"), true)
		time.Sleep(10*time.Second + time.Millisecond)
		d.expect("a Admit: AdoptedWithoutResources: the pod was running before and runs on with " +
			"what is recorded as its own; it lacks 5 exclusive CPUs of container main, 1 " +
			"example.com/gpu of container main; no more is to be had: context deadline exceeded; " +
			"to have it placed anew, delete and create it again")
		time.Sleep(3 * time.Minute)
		d.expect()
		d.queue.Submit(pod("b", "cpu=2"), false)
		d.expect("b Admit")
		if n := d.store.State().Pods["a"].CPUs().Size(); n != 0 {
			t.Errorf("it holds %d CPUs, want none", n)
		}
	})
}

// Nor does a disk that takes no record.
func TestAFailedCommitDoesNotStopWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		d.stop()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- d.queue.Run(ctx) }()
		d.queue.Submit(pod("a", "cpu=2"), true)
		d.expect("a Admit: AdoptedWithoutResources: the pod was running before and runs on with " +
			"what is recorded as its own; it lacks 2 exclusive CPUs of container main; no more is " +
			"to be had: record the assignment: the assignment store has stopped; to have it placed " +
			"anew, delete and create it again")
		cancel()
		<-done
	})
}
