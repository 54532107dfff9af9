package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// A pod whose sandbox is alive is admitted at once, whatever has changed since it was placed.
func TestWhatRunsIsLetRun(t *testing.T) {
	const (
		runsOn = "a Admit: AdoptedWithoutResources: the pod was running before and runs on with " +
			"what is recorded as its own; "
		lacksAll = "it lacks 2 exclusive CPUs of container main, 1 example.com/gpu of container " +
			"main; "
		tooMany = "no more is to be had: UnexpectedAdmissionError: Allocate failed due to "
		anew    = "; to have it placed anew, delete and create it again"
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
				c.Handlers = []decide.Handler{func(decide.Attempt) *decide.Refusal {
					return &decide.Refusal{Reason: "SysctlForbidden"}
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
				"unhealthy devices example.com/gpu: its device plugin lists no devices, which is " +
				"unexpected" + anew,
		},
		"the record is lost and its plugin says no": {
			lost: true, plugin: func(p *plugins) {
				p.allocate = func(context.Context, string, []string) error {
					return errors.New("no")
				}
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
			"what is recorded as its own; it lacks 2 exclusive CPUs of container main; no more " +
			"is to be had: record the assignment: the assignment store has stopped; to have it " +
			"placed anew, delete and create it again")
		cancel()
		<-done
	})
}

// A pod runs whose record was made good in part: a container that was not created yet has no answer
// of its plugin, or nothing. It is asked again, and placed, and what the other containers have
// stays. If the plugin is away then, it is done when the plugin is back.
func TestWhatIsNotCreatedYetIsMadeGood(t *testing.T) {
	device := func(id string, answer []byte) []allocation.DeviceSet {
		return []allocation.DeviceSet{{
			Resource: "example.com/gpu", IDs: []string{id}, Answer: answer,
		}}
	}
	const without = "a Admit: AdoptedWithoutResources: the pod was running before and runs on " +
		"with what is recorded as its own; "
	for name, test := range map[string]struct {
		main allocation.Container // what is known of it
		away string               // what is said while the plugin is away
		cpus string               // that it has in the end; "": any two that nobody has
	}{
		"its answer is missing": {
			main: allocation.Container{allocation.CPUs(cpuset.New(6, 7)), allocation.Devices(device("d1", nil))},
			cpus: "6-7",
			away: without + "no more is to be had: the plugin of example.com/gpu is away",
		},
		"nothing is known of it": {
			away: without + "it lacks 2 exclusive CPUs of container main, 1 example.com/gpu of " +
				"container main; no more is to be had: no device plugin has registered " +
				"example.com/gpu",
		},
	} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, plugin away %t", name, away), func(t *testing.T) {
				bubble(t, func(t *testing.T, dir string) {
					p := &plugins{allocate: func(_ context.Context, _ string, ids []string) error {
						if ids[0] == "d0" {
							t.Error("Allocate is called for what was created")
						}
						return nil
					}}
					d := open(t, dir, p, nil)
					defer d.stop()
					side := allocation.Container{
						allocation.CPUs(cpuset.New(1, 2)), allocation.Devices(device("d0", []byte{})),
					}
					held := allocation.Pod{
						UID: "a", Namespace: "default", Name: "a", BootID: "boot-1",
						Containers: map[string]allocation.Container{"side": side},
					}
					if test.cpus != "" {
						held.Containers["main"] = test.main
					}
					err := d.store.Commit(t.Context(), allocation.Change{Put: held})
					if err != nil {
						t.Fatal(err)
					}
					it := pod("a", "cpu=2 example.com/gpu=1")
					first := it.Spec.Containers[0]
					first.Name = "side"
					it.Spec.Containers = append(it.Spec.Containers, first)
					if away {
						works := p.allocate
						p.allocate = func(context.Context, string, []string) error {
							return errors.New("the plugin of example.com/gpu is away")
						}
						d.queue.Submit(it, true)
						d.expect(test.away + "; to have it placed anew, delete and create it again")
						p.allocate = works
					}
					p.offer("example.com/gpu", 2)
					if away {
						d.queue.Poke()
					} else {
						d.queue.Submit(it, true)
					}
					d.expect("a Admit")
					got := d.store.State().Pods["a"]
					if got.Incomplete(it) || !got.Containers["side"].CPUs().Equals(side.CPUs()) ||
						string(got.Containers["side"].Devices()[0].Answer) != "" {
						t.Errorf("it has %+v", got)
					}
					main := got.Containers["main"]
					if main.Devices()[0].IDs[0] != "d1" ||
						test.cpus != "" && main.CPUs().String() != test.cpus ||
						main.CPUs().Size() != 2 || !main.CPUs().Intersection(side.CPUs()).IsEmpty() {
						t.Errorf("main has %+v", main)
					}
					if n := p.calls.Load(); n != 1 && !(away && n == 2) {
						t.Errorf("Allocate was called %d times", n)
					}
				})
			})
		}
	}
}
