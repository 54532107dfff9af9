package deviceplugin

import (
	"maps"
	"slices"
	"time"

	"github.com/numalet/numalet/topology/await"
)

// calmPeriod is how long nobody is told of another change of a device's health.
const calmPeriod = time.Second

// calm holds back news of a resource of which a device has changed its health again within
// calmPeriod: readers see the list that they have seen, and then the newest one. The loop owns it.
type calm struct {
	// told is when readers were last told of a change, by resource and device.
	told map[string]map[string]time.Time
}

// hold puts what readers see already in the place of what is held back, and says which resources
// these are and when they are due.
func (c *calm) hold(next, shown *view, now time.Time) (held map[string]bool, due time.Time) {
	held = map[string]bool{}
	for name, r := range next.inventory.Resources {
		was := shown.inventory.Resources[name]
		if !r.Connected || !was.Connected || r.Generation == was.Generation ||
			next.links[name] != shown.links[name] {
			continue
		}
		turned := turns(was.Devices, r.Devices)
		if len(turned) == 0 && r.saysAgain(was) { // what was between was held back
			next.inventory.Resources[name] = was
			continue
		}
		if until := c.until(name, turned); until.After(now) {
			next.inventory.Resources[name], held[name] = was, true
			due = await.Earlier(due, until)
			continue
		}
		c.tell(name, turned, now)
	}
	return held, due
}

// saysAgain reports whether a resource is as before, but for the list's number.
func (r Resource) saysAgain(was Resource) bool {
	r.Generation = was.Generation
	return r.shows(was) && slices.EqualFunc(r.Devices, was.Devices,
		func(a, b *Device) bool { return a == b || *a == *b })
}

// until is when readers may be told that these devices have changed.
func (c *calm) until(resource string, turned []*Device) (until time.Time) {
	for _, d := range turned {
		if at, told := c.told[resource][d.ID]; told && at.Add(calmPeriod).After(until) {
			until = at.Add(calmPeriod)
		}
	}
	return until
}

func (c *calm) tell(resource string, turned []*Device, now time.Time) {
	maps.DeleteFunc(c.told[resource], func(_ string, at time.Time) bool {
		return !at.Add(calmPeriod).After(now)
	})
	if len(turned) > 0 && c.told[resource] == nil {
		if c.told == nil {
			c.told = map[string]map[string]time.Time{}
		}
		c.told[resource] = map[string]time.Time{}
	}
	for _, d := range turned {
		c.told[resource][d.ID] = now
	}
}

// forget has the next news of a resource not held back.
func (c *calm) forget(resource string) { delete(c.told, resource) }
