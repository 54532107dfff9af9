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

// Without a cluster no status has the resource, and a pod waits for a plugin.
func TestResourcesOfNoPluginStandalone(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Node = func() *v1.Node { return &v1.Node{} } })
		defer d.stop()
		d.queue.Submit(pod("a", dongle+"=1"), false)
		d.expect("a Wait: WaitingForDevicePlugin: no device plugin has registered example.com/dongle")
	})
}
