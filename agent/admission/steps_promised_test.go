package admission

import (
	"reflect"
	"slices"

	"github.com/numalet/numalet/agent/claims/claim"
)

// promised checks what pods wait with: no CPU is promised to two of them, and each was decided on with
// its resource claims as they are known now. It counts how often two pods are promised one device, which
// is rare and not yet explained.
func (w *walk) promised() {
	p := w.desk.queue.admitter.pods
	var before []*grant
	for _, e := range p.order {
		if !e.claims() || e.state.goes() {
			continue
		}
		g := grantOf(e.has.pod, 0)
		for _, o := range before {
			if both := g.cpus & o.cpus; both != 0 {
				w.failf("CPUs %s are promised to %s and to %s", both.set(), o.pod.UID, e.Pod.UID)
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
