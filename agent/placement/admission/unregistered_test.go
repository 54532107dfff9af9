package admission

import (
	"testing"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// With no time to wait, a plugin that is away is told of in the kubelet's words: by whether its
// resource is known, held, or neither.
func TestPluginsThatAreAwayInTheKubeletsWords(t *testing.T) {
	const failed = " Reject: UnexpectedAdmissionError: Allocate failed due to "
	const unregistered = failed + "cannot allocate unregistered device " +
		"example.com/gpu, which is unexpected"
	atOnce := func(c *Config) { c.Wait = 0 }
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, atOnce)
		d.queue.Submit(pod("old", "example.com/gpu=1"), false)
		d.expect("old Admit")
		d.stop()

		next := &plugins{}
		next.set(devicemanager.Resource{Name: "example.com/none"})
		d = open(t, dir, next, func(c *Config) { c.Wait, c.BootID = 0, "boot-2" })
		defer d.stop()
		d.queue.Submit(pod("new", "example.com/gpu=1"), false)
		d.expect("new" + unregistered)
		d.queue.Submit(pod("old", "example.com/gpu=1"), false)
		d.expect("old" + unregistered)
		d.queue.Submit(pod("nic", "example.com/nic=1"), false)
		d.expect("nic Reject: OutOfexample.com/nic: Node didn't have enough resource: " +
			"example.com/nic, requested: 1, used: 0, capacity: 0")
		d.queue.Submit(pod("none", "example.com/none=1"), false)
		d.expect("none" + failed + "no healthy devices present; cannot allocate unhealthy " +
			"devices example.com/none, which is unexpected")
	})
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, atOnce)
		d.queue.Submit(pod("old", "example.com/gpu=1"), false)
		d.expect("old Admit")
		d.stop()

		next := &plugins{} // known from the state, and away
		next.set(devicemanager.Resource{Name: "example.com/gpu"})
		d = open(t, dir, next, func(c *Config) { c.Wait, c.BootID = 0, "boot-2" })
		defer d.stop()
		d.queue.Submit(pod("old", "example.com/gpu=1"), false)
		d.expect("old" + failed + "no healthy devices present; cannot allocate unhealthy devices " +
			"example.com/gpu, which is unexpected")
	})
}
