package admission

import (
	"reflect"
	"slices"

	"github.com/numalet/numalet/agent/claims/claim"
)

// promised checks that each pod that waits was decided on with its resource claims as they are known
// now. It counts how often two pods are promised one CPU or device, which is rare and not yet explained.
func (w *walk) promised() {
	p := w.desk.queue.admitter.pods
	var before []*grant
	for _, e := range p.order {
		if !e.claims() || e.state.goes() {
			continue
		}
		g := grantOf(e.has.pod, 0)
		for _, o := range before {
			if g.cpus&o.cpus != 0 {
				w.seen["CPUs promised twice"]++
			}
			if both := slices.ContainsFunc(g.devices, func(id string) bool {
				return slices.Contains(o.devices, id)
			}); both {
				w.seen["devices promised twice"]++
			}
		}
		before = append(before, g)
		if e.state != waiting || !claim.Any(e.Pod) {
			continue
		}
		if known := p.claimsOf(e.Pod); !reflect.DeepEqual(known, e.uses) {
			w.failf("%s waits as if its claims were %+v, and they are %+v", e.Pod.UID, e.uses,
				known)
		}
	}
}
