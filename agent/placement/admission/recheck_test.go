package admission

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// threads is a machine of four cores, CPU n and n+4 each; some are offline. Core 0 is reserved.
func threads(t *testing.T, at *cpumanager.Static, offline ...int) machine.Hardware {
	t.Helper()
	m := topologytest.Machine(t, []topology.Node{{ID: 0, MemoryBytes: 16 << 30}}, 8, func(c *topology.CPU) {
		c.Core, c.Offline = c.Core%4, slices.Contains(offline, c.ID)
	})
	h := machine.Hardware{
		Machine: m, Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{MaxPods: 100}),
	}
	if at != nil {
		h.CPUs = at.On(m)
		return h
	}
	var err error
	h.CPUs, err = cpumanager.NewStatic(m, cpuset.New(0, 4), cpumanager.Options{FullPCPUsOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// changing is a desk on a machine that change replaces.
func changing(t *testing.T, dir string, p *plugins, first machine.Hardware) (
	d *desk, change func(machine.Hardware)) {
	var now atomic.Pointer[machine.Hardware]
	now.Store(&first)
	d = open(t, dir, p, func(c *Config) {
		c.Hardware = func() machine.Hardware { return *now.Load() }
	})
	return d, func(next machine.Hardware) {
		now.Store(&next)
		d.queue.Poke()
		synctest.Wait()
	}
}

// CPU 1 was a core by itself when it was claimed. Now that its other thread is online it is half a
// core, and one CPU is not to be had any more.
func TestAClaimOnAThreadBreaksWhenTheOtherComesOnline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		alone := threads(t, nil, 5)
		d, change := changing(t, dir, &plugins{}, alone)
		defer d.stop()
		d.queue.Submit(pod("old", "cpu=1"), false)
		d.now("old Admit")
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("new", "cpu=1"), false)
		d.now("new " + forResources)
		if claim := d.queue.admitter.line.Find("new").Has.Pod.CPUs(); !claim.Equals(cpuset.New(1)) {
			t.Fatalf("the claim is %s, want CPU 1", claim)
		}
		change(threads(t, alone.CPUs))
		said := d.hear()
		if len(said) != 1 || !strings.HasPrefix(said[0], "new Reject: SMTAlignmentError: ") {
			t.Errorf("said %q, want that one CPU is no whole core any more", said)
		}
		d.queue.Release("old")
		d.expect()
	})
}

// A claim on two threads, each alone on its core, becomes one on a whole core, before the pods that
// came later choose.
func TestAClaimOnThreadsBecomesOneOnACore(t *testing.T) {
	for name, test := range map[string]struct {
		known bool
		takes time.Duration
	}{
		"the plugin is away": {}, "the plugin fails": {known: true},
		"the plugin hangs": {true, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				var works atomic.Bool
				p := &plugins{allocate: func(context.Context, string, []string) error {
					if works.Load() {
						return nil
					}
					time.Sleep(test.takes)
					return context.DeadlineExceeded
				}}
				if test.known {
					p.offer("example.com/nic", 1)
				}
				alone := threads(t, nil, 5, 6)
				d, change := changing(t, dir, p, alone)
				defer d.stop()
				d.queue.Submit(pod("other", "cpu=2"), false)
				d.now("other Admit")
				d.queue.Submit(pod("first", "cpu=2 example.com/nic=1"), false)
				d.queue.Submit(pod("later", "cpu=1 example.com/gpu=1"), false)
				synctest.Wait()
				d.hear()
				claim := d.queue.admitter.line.Find("first").Has.Pod.CPUs()
				if claim.Contains(5) || claim.Contains(6) || claim.Size() != 2 {
					t.Fatalf("the claim is %s", claim)
				}
				change(threads(t, alone.CPUs))
				if !test.known {
					p.offer("example.com/nic", 1)
					d.queue.Poke()
				}
				time.Sleep(test.takes)
				works.Store(true)
				time.Sleep(10 * time.Second) // for a call to be tried again
				synctest.Wait()
				if said := d.outcomes()["first"]; said != "Admit" {
					t.Fatalf("said %q of first, want Admit", said)
				}
				got := d.store.State().Pods["first"].CPUs()
				if !got.Equals(cpuset.New(1, 5)) && !got.Equals(cpuset.New(2, 6)) {
					t.Errorf("first has CPUs %s, which are no whole core", got)
				}
			})
		})
	}
}
