package admission

import (
	"reflect"
	"slices"

	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// promised checks that each pod that waits was decided on with its resource claims as they are known
// now, and that no two pods are promised one CPU or device.
func (w *walk) promised() {
	p := w.desk.queue.admitter.line
	var before []*grant
	for _, e := range p.Order {
		if !e.Claims() || e.State.Goes() {
			continue
		}
		g := grantOf(e.Has.Pod, 0)
		for _, o := range before {
			if g.cpus&o.cpus != 0 {
				w.failf("%s has CPUs that an earlier pod is promised: %s", e.Pod.UID, w.state(w.find(e.Pod.UID)))
			}
			if both := slices.ContainsFunc(g.devices, func(id string) bool {
				return slices.Contains(o.devices, id)
			}); both {
				w.failf("%s has devices that an earlier pod is promised: %s", e.Pod.UID,
					w.state(w.find(e.Pod.UID)))
			}
		}
		before = append(before, g)
		if e.State != record.Waiting || !claim.Any(e.Pod) {
			continue
		}
		if known := p.ClaimsOf(e.Pod); !reflect.DeepEqual(known, e.Uses) {
			w.failf("%s waits as if its claims were %+v, and they are %+v", e.Pod.UID, e.Uses,
				known)
		}
	}
}

// lineEnds checks that no pod stands in line behind itself.
func (w *walk) lineEnds() {
	p := w.desk.queue.admitter.line
	for _, e := range p.Order {
		o, n := e, 0
		for ; o != nil && o.State == record.Behind && n <= len(p.Order); n++ {
			o = p.Find(o.After)
		}
		if n > len(p.Order) {
			w.failf("%s stands behind itself: %s", e.Pod.UID, w.state(w.find(e.Pod.UID)))
		}
	}
}
