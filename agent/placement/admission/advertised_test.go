package admission

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// advertising is a node of a cluster, whose status has amounts of extended resources; it is not known
// before the first call.
type advertising struct{ node atomic.Pointer[v1.Node] }

func (a *advertising) says(amounts map[v1.ResourceName]string) {
	n := &v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")},
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("7")}}}
	for name, amount := range amounts {
		n.Status.Capacity[name] = resource.MustParse(amount)
		n.Status.Allocatable[name] = resource.MustParse(amount)
	}
	a.node.Store(n)
}

func (a *advertising) in(wait time.Duration) func(*Config) {
	return func(c *Config) { c.Wait, c.Clustered, c.Node = wait, true, a.node.Load }
}

const (
	dongle  = "example.com/dongle"
	gpumem  = "example.com/gpumem"
	noAwait = time.Duration(0)
)

// A resource that no device plugin has had is counted if the node's status has it, and left aside if
// not, at once and whether or not pods wait. One that a plugin had, or of which the status has 0, is
// waited for.
func TestResourcesOfNoPlugin(t *testing.T) {
	for _, wait := range []time.Duration{noAwait, 2 * time.Minute} {
		bubble(t, func(t *testing.T, dir string) {
			var node advertising
			node.says(map[v1.ResourceName]string{dongle: "2", "example.com/zero": "0"})
			p := &plugins{}
			p.inventory.Store(&devicemanager.Inventory{Gone: []string{"example.com/gone"},
				Resources: map[string]devicemanager.Resource{"example.com/here": {Name: "example.com/here"}},
				Refused:   map[string]string{"example.com/refused": "a reason"}})
			d := open(t, dir, p, node.in(wait))
			defer d.stop()
			d.queue.Submit(pod("a", dongle+"=1 "+gpumem+"=4000"), false)
			d.expect("a Admit")
			d.queue.Submit(pod("b", dongle+"=2"), false)
			d.expect("b Reject: OutOfexample.com/dongle: Node didn't have enough resource: " +
				"example.com/dongle, requested: 2, used: 1, capacity: 2")
			for _, name := range []string{"zero", "gone", "here", "refused"} {
				d.queue.Submit(pod(name, "example.com/"+name+"=1 "+dongle+"=1"), false)
				synctest.Wait()
				want := map[bool]string{true: "Wait WaitingForDevicePlugin", false: "Reject"}[wait > 0]
				if said := d.outcomes(); said[name] != want {
					t.Errorf("wait %s: %v, want %s", wait, said, want)
				}
				d.queue.Release(types.UID(name))
			}
			d.queue.Submit(pod("c", dongle+"=1"), false)
			d.expect("c Admit")
		})
	}
}

// What a terminating pod has of such a resource is waited for, and what is added to the node's status.
func TestResourcesOfNoPluginAreWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var node advertising
		node.says(map[v1.ResourceName]string{dongle: "2"})
		d := open(t, dir, &plugins{}, node.in(2*time.Minute))
		defer d.stop()
		d.queue.Submit(pod("old", dongle+"=2"), false)
		d.expect("old Admit")
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("a", dongle+"=1"), false)
		d.queue.Submit(pod("b", dongle+"=2"), false)
		const waits = " Wait: WaitingForResources: Node didn't have enough resource: example.com/dongle, " +
			"requested: 1, used: 2, capacity: 2; pods that are terminating hold what is missing"
		d.expect("a"+waits, "b Reject: OutOfexample.com/dongle: Node didn't have enough resource: "+
			"example.com/dongle, requested: 2, used: 2, capacity: 2")
		node.says(map[v1.ResourceName]string{dongle: "3"})
		d.queue.Poke()
		d.expect("a Admit")
	})
}

// Before the API server has told of the node, a pod waits, and starts without when its time is over.
func TestResourcesOfNoPluginBeforeTheNodeIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var node advertising
		d := open(t, dir, &plugins{}, node.in(2*time.Minute))
		defer d.stop()
		d.queue.Submit(pod("early", dongle+"=1"), false)
		d.expect("early Wait: WaitingForDevicePlugin: no device plugin has registered example.com/dongle")
		node.says(map[v1.ResourceName]string{dongle: "1"})
		d.queue.Poke()
		d.expect("early Admit")
	})
	bubble(t, func(t *testing.T, dir string) {
		var node advertising
		d := open(t, dir, &plugins{}, node.in(2*time.Minute))
		defer d.stop()
		d.queue.Submit(pod("a", dongle+"=1"), false)
		d.expect("a Wait: WaitingForDevicePlugin: no device plugin has registered example.com/dongle")
		time.Sleep(2*time.Minute + time.Second)
		d.expect("a Admit")
	})
}

// A pod that runs keeps its part of such a resource over a restart, though the node is not known yet.
func TestResourcesOfNoPluginAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var node advertising
		d := open(t, dir, &plugins{}, node.in(2*time.Minute))
		defer d.stop()
		d.queue.Submit(pod("old", "cpu=1 "+dongle+"=2"), true)
		d.expect("old Admit")
		node.says(map[v1.ResourceName]string{dongle: "3"})
		d.queue.Poke()
		d.queue.Submit(pod("new", dongle+"=2"), false)
		d.expect("new Reject: OutOfexample.com/dongle: Node didn't have enough resource: " +
			"example.com/dongle, requested: 2, used: 2, capacity: 3")
	})
}

// Without a cluster no status has the resource, and a pod waits for a plugin.
func TestResourcesOfNoPluginStandalone(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Node = func() *v1.Node { return &v1.Node{} } })
		defer d.stop()
		d.queue.Submit(pod("a", dongle+"=1"), false)
		d.expect("a Wait: WaitingForDevicePlugin: no device plugin has registered example.com/dongle")
	})
}
