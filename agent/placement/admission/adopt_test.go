package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
)

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
