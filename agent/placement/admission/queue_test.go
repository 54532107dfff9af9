package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

func TestAdmitHoldsAndReleaseGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
		d.expect("a Admit")
		held := d.store.State().Pods["a"]
		if got := held.Containers["main"]; got.CPUs().Size() != 2 || got.Devices()[0].Answer == nil ||
			held.BootID != "boot-1" {
			t.Errorf("the store holds %+v, want 2 CPUs and an answered device under boot-1", held)
		}
		d.queue.Submit(pod("b", "cpu=1 example.com/gpu=1"), false)
		d.expect("b Reject: UnexpectedAdmissionError: Allocate failed due to requested number of " +
			"devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is " +
			"unexpected")
		d.queue.Release("a")
		d.queue.Release("b")
		synctest.Wait()
		if n := len(d.store.State().Pods); n != 0 {
			t.Errorf("%d pods in the store after the release, want none", n)
		}
		d.queue.Submit(pod("b", "cpu=1 example.com/gpu=1"), false)
		d.expect("b Admit")
	})
}

func TestCapacity(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=6500m"), false)
		d.queue.Submit(pod("b", "cpu=600m"), false)
		d.queue.Submit(pod("c", "cpu=100m memory=15.5Gi"), false)
		d.queue.Submit(pod("d", "cpu=100m"), false)
		d.queue.Submit(pod("e", "cpu=100m"), false)
		d.queue.Submit(pod("f", "cpu=100m"), false)
		d.queue.Submit(pod("g", "cpu=100m"), false)
		d.expect("a Admit",
			"b Reject: OutOfcpu: Node didn't have enough resource: cpu, requested: 600, used: "+
				"6500, capacity: 7000",
			"c Reject: OutOfmemory: Node didn't have enough resource: memory, requested: "+
				"16642998272, used: 1073741824, capacity: 17179869184",
			"d Admit", "e Admit", "f Admit",
			"g Reject: OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 4, "+
				"capacity: 4")
	})
}

// A pod withdrawn while its plugin is being asked leaves nothing behind.
func TestReleaseWhileBusy(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=7 example.com/gpu=1"), false)
		synctest.Wait()
		d.queue.Release("a")
		d.queue.Submit(pod("b", "cpu=7"), false)
		synctest.Wait()
		if said := d.hear(); len(said) == 0 || said[len(said)-1] != "b Admit" {
			t.Errorf("said %q, want b admitted in the end", said)
		}
	})
}

// A release ends with Released, once nothing is recorded any more: of a pod that was admitted, of
// one that waits, and of one that nothing is known of. Until then a submission is ignored.
func TestReleaseIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=2"), false)
		d.queue.Submit(pod("b", "example.com/gpu=1"), false)
		d.now("a Admit, b " + forPlugin)
		d.queue.Leaving("a", false)
		d.queue.Submit(pod("a", "cpu=3"), false)
		d.expect()
		for i, uid := range []types.UID{"a", "b", "c"} {
			d.queue.Release(uid)
			d.expect()
			if n := d.released.Load(); n != int64(i+1) {
				t.Errorf("%d pods were said to be released, want %d", n, i+1)
			}
		}
		if n := len(d.store.State().Pods); n != 0 {
			t.Errorf("%d pods in the store, want none", n)
		}
		d.queue.Submit(pod("a", "cpu=3"), false)
		d.expect("a Admit")
		if n := d.store.State().Pods["a"].CPUs().Size(); n != 3 {
			t.Errorf("a holds %d CPUs, want 3", n)
		}
	})
}

// What was under way when a pod was released is waited for: nothing is recorded of it afterwards.
func TestAnAnswerAfterTheReleaseDoesNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		answer := make(chan struct{})
		p := &plugins{allocate: func(context.Context, string, []string) error {
			<-answer // whatever becomes of the context
			return nil
		}}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=7 example.com/gpu=1"), false)
		synctest.Wait()
		d.queue.Leaving("a", false)
		d.queue.Release("a")
		d.queue.Release("a")
		synctest.Wait()
		if n := d.released.Load(); n != 0 {
			t.Error("a is said to be released while its plugin is called")
		}
		close(answer)
		d.expect()
		if n := d.released.Load(); n != 1 {
			t.Errorf("the release is told %d times, want once", n)
		}
		if n := len(d.store.State().Pods); n != 0 {
			t.Errorf("%d pods in the store, want none", n)
		}
		d.queue.Submit(pod("b", "cpu=7 example.com/gpu=1"), false)
		d.expect("b Admit")
	})
}

// A commit that fails takes nothing; the pod waits and is admitted when the disk has room again.
func TestFailedCommit(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		d.stop() // the store has stopped: commits fail
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- d.queue.Run(ctx) }()
		d.queue.Submit(pod("a", "cpu=2"), false)
		d.expect(
			"a Wait: WaitingForStateFile: record the assignment: the assignment store has stopped")
		time.Sleep(3 * time.Minute)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to record the " +
			"assignment: the assignment store has stopped, which is unexpected")
		cancel()
		<-done
		if n := len(d.store.State().Pods); n != 0 {
			t.Errorf("%d pods in the store, want none", n)
		}
	})
}

// Between a cause and what it brings about no time passes: nothing is looked for at intervals.
func TestAdmittedWithinAMomentOfTheCause(t *testing.T) {
	const moment = 100 * time.Millisecond
	for name, test := range map[string]struct {
		request string
		clear   func(d *desk, p *plugins)
	}{
		"release": {"cpu=5", func(d *desk, _ *plugins) { d.queue.Release("old") }},
		"plugin registered": {"example.com/nic=1", func(d *desk, p *plugins) {
			p.offer("example.com/nic", 1)
			d.queue.Poke()
		}},
		"device healthy": {"example.com/gpu=1", func(d *desk, p *plugins) {
			p.offer("example.com/gpu", 1)
			d.queue.Poke()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				p := &plugins{}
				p.set(devicemanager.Resource{
					Name: "example.com/gpu", Connected: true,
					Devices: []*devicemanager.Device{{ID: "d0"}},
				})
				d := open(t, dir, p, roomy(100))
				defer d.stop()
				d.queue.Submit(pod("old", "cpu=4"), false)
				d.now("old Admit")
				d.queue.Leaving("old", false)
				d.queue.Submit(pod("new", test.request), false)
				if said := d.outcomes()["new"]; !strings.HasPrefix(said, "Wait ") {
					t.Fatalf("said %q, want new to wait", said)
				}
				time.Sleep(17 * time.Second)
				cause := time.Now()
				test.clear(d, p)
				for d.outcomes()["new"] != "Admit" {
					time.Sleep(time.Millisecond)
					if time.Since(cause) > moment {
						t.Fatalf("not admitted %v after the cause has cleared", moment)
					}
				}
			})
		})
	}
}

// A waiting pod tells why once, however often it is looked at.
func TestWaitingIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		d := open(t, dir, p, roomy(1000))
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.now("a " + forPlugin)
		for i := range 50 {
			p.offer("example.com/nic", i)
			d.queue.Poke()
			uid := fmt.Sprint("other-", i)
			d.queue.Submit(pod(uid, "memory=1Mi"), false)
			d.now(uid + " Admit")
			d.queue.Release(types.UID(uid))
			d.now("")
		}
	})
}
