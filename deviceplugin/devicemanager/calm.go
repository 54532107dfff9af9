package devicemanager

import (
	"maps"
	"slices"
	"time"

	"github.com/numalet/numalet/internal/await"
)

// calmPeriod is the time after a published change of a device's health in which the next change is
// held back.
const calmPeriod = time.Second

// calm holds back news of a resource while one of its devices changes its health again within
// calmPeriod: readers keep the list that they have, and then get the newest one. The loop owns it.
type calm struct {
	// shown holds the time of the last published change, by resource and device.
	shown map[string]map[string]time.Time
}

// hold replaces the resources of next that are held back by what readers see already. It returns
// their names and the time when the first of them is due.
func (c *calm) hold(next, shown *view, now time.Time) (held map[string]bool, due time.Time) {
	held = map[string]bool{}
	for name, r := range next.inventory.Resources {
		was := shown.inventory.Resources[name]
		if !r.Connected || !was.Connected || r.Generation == was.Generation ||
			next.links[name] != shown.links[name] {
			continue
		}
		changed := healthChanges(was.Devices, r.Devices)
		if len(changed) == 0 && r.saysAgain(was) { // what came in between was held back
			next.inventory.Resources[name] = was
			continue
		}
		if until := c.until(name, changed); until.After(now) {
			next.inventory.Resources[name], held[name] = was, true
			due = await.Earlier(due, until)
			continue
		}
		c.tell(name, changed, now)
	}
	return held, due
}

// saysAgain reports whether only the list's number differs from before.
func (r Resource) saysAgain(was Resource) bool {
	r.Generation = was.Generation
	return r.shows(was) && slices.EqualFunc(r.Devices, was.Devices,
		func(a, b *Device) bool { return a == b || *a == *b })
}

// until returns when readers may hear that these devices changed.
func (c *calm) until(resource string, changed []*Device) (until time.Time) {
	for _, d := range changed {
		if at, shown := c.shown[resource][d.ID]; shown && at.Add(calmPeriod).After(until) {
			until = at.Add(calmPeriod)
		}
	}
	return until
}

func (c *calm) tell(resource string, changed []*Device, now time.Time) {
	maps.DeleteFunc(c.shown[resource], func(_ string, at time.Time) bool {
		return !at.Add(calmPeriod).After(now)
	})
	if len(changed) > 0 && c.shown[resource] == nil {
		if c.shown == nil {
			c.shown = map[string]map[string]time.Time{}
		}
		c.shown[resource] = map[string]time.Time{}
	}
	for _, d := range changed {
		c.shown[resource][d.ID] = now
	}
}

// forget lets the next news of a resource pass at once.
func (c *calm) forget(resource string) { delete(c.shown, resource) }
