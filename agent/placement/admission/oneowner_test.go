package admission

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

const sharedGPU = "GPU-0"

// withOneGPU is a desk whose only GPU a plugin lists, and each claim has.
func withOneGPU(t *testing.T, dir string, wait time.Duration) (*desk, *resourceClaims) {
	c := &resourceClaims{lacks: map[types.UID]claim.Lack{}, begun: map[types.UID]bool{},
		at: claim.Place{UUID: sharedGPU}}
	p := &plugins{}
	p.set(devicemanager.Resource{Name: "example.com/gpu", Connected: true,
		Devices: []*devicemanager.Device{{ID: sharedGPU, Healthy: true}}})
	return open(t, dir, p, func(cfg *Config) { cfg.Claims, cfg.Wait = c, wait }), c
}

const (
	byClaimFirst = "a Reject: UnexpectedAdmissionError: Allocate failed due to requested number of devices " +
		"unavailable for example.com/gpu. Requested: 1, Available: 0; device GPU-0 of example.com/gpu and " +
		"device gpu.example.com/node/gpu-0 of claim gpu, which pod default/c has, are the same hardware: " +
		"both have the UUID GPU-0, which is unexpected"
	byPluginFirst = "c Reject: DeviceHasOwner: claim gpu cannot be used: device " +
		"gpu.example.com/node/gpu-0 of claim gpu and device GPU-0 of example.com/gpu, which pod default/a " +
		"has, are the same hardware: both have the UUID GPU-0; have either the driver or the device plugin " +
		"hand out this hardware, or end the pod that has it"
)

// A GPU has one owner: who comes second by the other way is refused before a driver or a plugin is
// called, also after a restart, and waits while the first one ends.
func TestOneDeviceHasOneOwner(t *testing.T) {
	for _, wait := range []time.Duration{time.Minute, 0} {
		for _, first := range []string{"a", "c"} {
			bubble(t, func(t *testing.T, dir string) {
				plugin, byClaim := pod("a", "example.com/gpu=1"), claiming("c", "cpu=1")
				before, after, refused := plugin, byClaim, byPluginFirst
				if first == "c" {
					before, after, refused = byClaim, plugin, byClaimFirst
				}
				d, c := withOneGPU(t, dir, wait)
				d.queue.Submit(before, false)
				d.expect(first + " Admit")
				c.calls()
				d.queue.Submit(after, false)
				d.expect(refused)
				if calls, allocated := c.calls(), d.plugins.calls.Load(); len(calls) > 0 ||
					allocated > 1 || allocated == 1 && first == "c" {
					t.Errorf("the driver was called for %v, the plugin %d times", calls, allocated)
				}
				d.queue.Release(after.UID)
				d.stop()

				d, c = withOneGPU(t, dir, wait)
				defer d.stop()
				d.queue.Submit(after, false) // the other one is only recorded yet
				if said := d.outcomes()[string(after.UID)]; strings.HasPrefix(said, "Admit") {
					t.Errorf("after a restart: %s %s", after.UID, said)
				}
				d.queue.Submit(before, true)
				d.queue.Release(after.UID)
				synctest.Wait()
				d.hear()
				d.queue.Submit(after, false)
				d.expect(refused)
				d.queue.Release(after.UID)
				if c.calls(); d.plugins.calls.Load() > 0 {
					t.Errorf("after a restart the plugin was called %d times", d.plugins.calls.Load())
				}
				d.queue.Leaving(before.UID, false)
				synctest.Wait()
				d.hear()
				d.queue.Submit(after, false)
				if wait > 0 {
					synctest.Wait()
					said := d.hear()
					if len(said) != 1 || !strings.HasPrefix(said[0], string(after.UID)+" Wait: "+decide.ReasonWaitResources) {
						t.Errorf("while it ends: %q", said)
					}
					d.queue.Submit(pod("x", "cpu=1"), false)
					d.expect("x Admit")
					d.queue.Release("x") // waiting pods look for a place again
					d.expect()
					d.queue.Release(before.UID)
					d.expect(string(after.UID) + " Admit")
				}
			})
		}
	}
}

// A waiting pod holds the hardware of its claim against later pods that want it from a plugin, and the
// other way round.
func TestWaitingPodsHoldHardware(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withOneGPU(t, dir, time.Minute)
		defer d.stop()
		c.lacks["c"] = noDriver
		c.knows = true
		d.queue.Submit(claiming("c", "cpu=1"), false)
		d.expect("c Wait: WaitingForResourceDriver: driver x is not registered")
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.expect(byClaimFirst)
		c.set(func() { delete(c.lacks, "c") })
		d.queue.Poke()
		d.expect("c Admit")
	})
}

// A pod that waits holds the hardware of its claim from when it is known which it is: a later pod that
// waits for it from a plugin gives way, once.
func TestHardwareBecomesKnown(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, c := withOneGPU(t, dir, time.Minute)
		defer d.stop()
		c.at, c.knows = claim.Place{}, true
		c.elsewhere = map[types.UID]claim.Place{"w": {UUID: "GPU-9"}}
		c.lacks["c"], c.lacks["w"] = noDriver, noDriver
		d.queue.Submit(claiming("c", "cpu=1"), false)
		d.expect("c Wait: WaitingForResourceDriver: driver x is not registered")
		d.queue.Submit(claiming("w", "example.com/gpu=1"), false)
		d.expect("w Wait: WaitingForResourceDriver: driver x is not registered")
		c.set(func() { c.at = claim.Place{UUID: sharedGPU} })
		d.queue.Poke()
		synctest.Wait()
		if said := d.hear(); len(said) != 1 || !strings.HasPrefix(said[0], "w Reject: UnexpectedAdmissionError") {
			t.Errorf("known, it is %q", said)
		}
		c.set(func() { clear(c.lacks) })
		d.queue.Poke()
		d.expect("c Admit")
	})
}
