package admission

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// sharedClaims are the names of claims that several pods use.
var sharedClaims = []string{"shared-0", "shared-1"}

// claimTime is how long claims may take after all is well again: a driver's call, and the longest pause
// before a next one.
const claimTime = 2 * time.Minute

// stepsHaveClaims reports whether pods of the walk use claims. NUMALET_STEPS_CLAIMS is 1: in every walk,
// 0: in none; not set: in every other one.
func stepsHaveClaims(seed uint64) bool {
	switch os.Getenv("NUMALET_STEPS_CLAIMS") {
	case "":
		return seed%2 == 1
	case "0":
		return false
	}
	return true
}

// chooseClaims has one pod of three use claims: its own, shared ones, or both.
func (o *order) chooseClaims(r *rand.Rand) {
	if r.IntN(3) > 0 {
		return
	}
	if r.IntN(2) == 0 {
		o.claims = append(o.claims, "own-"+string(o.uid))
	}
	if len(o.claims) == 0 || r.IntN(4) == 0 {
		o.claims = append(o.claims, sharedClaims[r.IntN(len(sharedClaims))])
	}
	for i, name := range o.claims {
		entry := fmt.Sprint("c", i)
		o.pod.Spec.ResourceClaims = append(o.pod.Spec.ResourceClaims,
			v1.PodResourceClaim{Name: entry, ResourceClaimName: ptr.To(name)})
		uses := func(c *v1.Container) {
			c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: entry})
		}
		uses(&o.pod.Spec.Containers[0])
		for i := range o.pod.Spec.InitContainers {
			if r.IntN(2) == 0 {
				uses(&o.pod.Spec.InitContainers[i])
			}
		}
	}
}

// openClaims starts the agent's part on what the file has.
func (w *walk) openClaims() *claims.Manager {
	c := w.claims
	w.entitle()
	m, err := claims.New(claims.Config{
		Dir: w.dir, BootID: w.bootID(), Get: c.get, Drivers: c,
		DriversChanged: w.driversChanged,
		Place:          func(driver, _, device string) claim.Place { return stepPlace(driver, device, w.site.nodes) },
		Ends:           claims.Ends{Changed: func() { w.desk.queue.Poke() }},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// entitle says which pods may use claims, and with which ones they run.
func (w *walk) entitle() {
	running, active, known := sets.New[types.UID](), sets.New[types.UID](), true
	for _, t := range w.tenants {
		known = known && (t.known || t.going || !t.desired)
		if t.alive || t.known && t.said != "Reject" {
			active.Insert(t.uid)
		}
		if t.alive && t.held != nil {
			running.Insert(t.held.claims...)
		}
	}
	w.claims.set(func() { w.claims.running, w.claims.active, w.claims.known = running, active, known })
}

// arrive has the control plane make the claims of a new pod, mostly.
func (w *walk) arrive(t *tenant) {
	for _, name := range t.claims {
		w.claims.set(func() {
			one := w.claims.find(name)
			if one == nil && w.r.IntN(6) > 0 {
				one = w.claims.make(name)
			}
			if one == nil {
				return
			}
			if !one.allocated && w.r.IntN(6) > 0 {
				w.claims.allocate(w.r, one)
			}
			if w.r.IntN(6) > 0 {
				one.reserved.Insert(t.uid)
			}
		})
	}
}

// claim has a claim of some pod made, allocated and reserved, or vanish from the API server.
func (w *walk) claim() bool {
	if !w.hasClaims {
		return true
	}
	lacks := func(t *tenant) bool { return t.known && w.lacksClaim(t) }
	if t := w.pick(lacks); t != nil && w.r.IntN(8) > 0 {
		for _, name := range t.claims {
			w.claims.set(func() {
				one := w.claims.find(name)
				if one == nil {
					one = w.claims.make(name)
				}
				if !one.allocated {
					w.claims.allocate(w.r, one)
				}
				one.reserved.Insert(t.uid)
			})
		}
		return true
	}
	t := w.pick(func(t *tenant) bool { return len(t.claims) > 0 })
	if t == nil || w.r.IntN(4) > 0 {
		return false
	}
	w.claims.set(func() {
		if one := w.claims.find(t.claims[0]); one != nil {
			w.tell("  %s vanishes", one.uid)
			one.vanished = true
		}
	})
	return true
}

// serve has a driver come or go.
func (w *walk) serve() bool {
	at := w.r.IntN(len(stepDrivers))
	w.claims.set(func() {
		w.claims.away[at] = !w.claims.away[at] && w.r.IntN(2) == 0
		w.tell("  %s: %v", stepDrivers[at], !w.claims.away[at])
	})
	select {
	case w.driversChanged <- struct{}{}:
	default:
	}
	return true
}

// upset has a driver answer late, hang, refuse, or be well.
func (w *walk) upset() bool {
	at, mood := w.r.IntN(len(stepDrivers)), well
	if w.r.IntN(3) == 0 {
		mood = [...]driverMood{delayed, delayed, delayed, hanging, refusing}[w.r.IntN(5)]
	}
	w.tell("  %s: %v", stepDrivers[at], mood)
	w.claims.set(func() {
		if w.claims.moods[at] != mood {
			w.claims.moods[at], w.claims.changed[at] = mood, time.Now()
		}
	})
	return true
}

// silence has the API server not answer about claims, or answer again.
func (w *walk) silence() bool {
	w.claims.set(func() {
		w.claims.silent = !w.claims.silent && w.r.IntN(2) == 0
		w.tell("  %v", w.claims.silent)
	})
	return true
}

// lacksClaim reports whether the API server has not all claims of the pod for it.
func (w *walk) lacksClaim(t *tenant) (lacks bool) {
	w.claims.set(func() {
		for _, name := range t.claims {
			one := w.claims.find(name)
			lacks = lacks || one == nil || !one.allocated || !one.reserved.Has(t.uid)
		}
	})
	return lacks
}

// troubled reports whether the pod's claims may not be usable now.
func (w *walk) troubled(t *tenant) (is bool) {
	if len(t.claims) == 0 {
		return false
	}
	if w.lacksClaim(t) {
		return true
	}
	recorded := w.desk.claims.List()
	w.claims.set(func() {
		is = w.claims.silent
		for _, name := range t.claims {
			one := w.claims.find(name)
			for _, d := range one.devices {
				is = is || w.claims.away[d.driver] || w.claims.moods[d.driver] != well ||
					time.Since(w.claims.changed[d.driver]) < driverTime
			}
			for _, row := range recorded { // an earlier claim of that name is to be unprepared
				is = is || row.Name == name && row.UID != one.uid
			}
		}
	})
	return is
}

// claimed checks what drivers have, and frees what nobody uses.
func (w *walk) claimed() {
	for _, t := range w.tenants {
		if w.troubled(t) {
			t.troubledAt = time.Now()
		}
	}
	for _, wrong := range w.claims.found() {
		w.failf("%s", wrong)
	}
}

// settle checks after what was heard that pods that run have their claims prepared, and that nothing
// stays prepared for nobody. The control plane removes the claims of pods that are gone.
func (w *walk) settle() {
	w.entitle()
	users, held := sets.New[string](), map[types.UID]bool{}
	for _, t := range w.tenants {
		if t.said != "Reject" && !t.going {
			users.Insert(t.claims...)
		}
		if t.alive && t.held != nil {
			w.prepared(t)
		}
	}
	for _, row := range w.desk.claims.List() {
		held[row.UID] = true
	}
	w.claims.set(func() {
		bad := w.claims.silent || !w.claims.known || w.claims.away != [2]bool{} ||
			w.claims.moods != [2]driverMood{}
		for at := range w.claims.prepared {
			for uid := range w.claims.prepared[at] {
				w.overdue(at, uid, bad, users)
			}
		}
		w.claims.claims = slices.DeleteFunc(w.claims.claims, func(one *stepClaim) bool {
			if one.vanished && users.Has(one.name) || !one.vanished && users.Has(one.name) || held[one.uid] {
				return false
			}
			for uid := range one.reserved {
				if w.desk.claims.Held(uid) != nil || w.find(uid) != nil {
					return false
				}
			}
			for at := range w.claims.prepared {
				if _, has := w.claims.prepared[at][one.uid]; has {
					return false
				}
			}
			return true
		})
	})
}

// overdue checks how long a driver has had a claim prepared that nobody uses.
func (w *walk) overdue(at int, uid types.UID, bad bool, users sets.Set[string]) {
	one := w.claims.byUID(uid)
	switch since, known := w.unused[uid]; {
	case one == nil:
		w.failf("%s has %s prepared, which is nobody's", stepDrivers[at], uid)
	case users.Has(one.name):
		delete(w.unused, uid)
	case bad || !known:
		w.unused[uid] = time.Now()
	case time.Since(since) > claimTime:
		w.failf("%s has had %s prepared for nobody for %v", stepDrivers[at], uid, time.Since(since))
	}
}

// prepared checks that the claims with which the pod runs are prepared.
func (w *walk) prepared(t *tenant) {
	w.claims.set(func() {
		for _, uid := range t.held.claims {
			one := w.claims.byUID(uid)
			if one == nil {
				w.failf("%s runs with %s, which is gone", t.uid, uid)
				continue
			}
			for _, d := range one.devices {
				if !slices.Contains(w.claims.prepared[d.driver][uid], d.device) {
					w.failf("%s runs with %s, and %s has not prepared dev-%d", t.uid, uid,
						stepDrivers[d.driver], d.device)
				}
			}
		}
	})
}

// oneOwner checks that a pod has no hardware by one way that somebody has by the other.
func (w *walk) oneOwner(t *tenant, g, before *grant) {
	if t.alive || t.inflight || before != nil {
		return
	}
	for _, o := range w.tenants {
		has := o.held
		if o == t {
			has = g
		}
		if has == nil {
			continue
		}
		for _, address := range g.byClaim {
			if slices.Contains(has.byPlugin, address) {
				w.failf("%s has %s by claim, and %s from a plugin", t.uid, address, o.uid)
			}
		}
		for _, address := range g.byPlugin {
			if slices.Contains(has.byClaim, address) {
				w.failf("%s has %s from a plugin, and %s by claim", t.uid, address, o.uid)
			}
		}
	}
	if len(g.claims) > 0 {
		w.seen["has claims"]++
	}
}

// addClaims copies what a container has by claim, and where what it has from plugins is.
func (g *grant) addClaims(c allocation.Container) {
	for _, one := range c.Claims() {
		if one.UID != "" && !slices.Contains(g.claims, one.UID) {
			g.claims = append(g.claims, one.UID)
		}
		for _, d := range one.Devices {
			g.byClaim = append(g.byClaim, d.Place.PCI)
		}
	}
	for _, set := range c.Devices() {
		for i := range set.IDs {
			if address := set.AddressOf(i); address != "" {
				g.byPlugin = append(g.byPlugin, address)
			}
		}
	}
}

// isForClaim reports whether the reason is that of a pod that waits for claims or their drivers.
func isForClaim(reason string) bool {
	return reason == claim.ReasonWaitClaim || reason == claim.ReasonWaitDriver
}

// endClaims ends all pods while all is well: then drivers have nothing any more.
func (w *walk) endClaims() {
	for w.broken {
		w.disk()
	}
	w.claims.set(func() {
		w.claims.silent, w.claims.away = false, [len(stepDrivers)]bool{}
		w.claims.moods = [len(stepDrivers)]driverMood{}
	})
	for _, t := range slices.Clone(w.tenants) {
		if !t.going {
			t.again = false
			w.end(t)
		}
	}
	w.entitle()
	time.Sleep(2 * claimTime)
	for at, has := range w.claims.prepared {
		for uid := range has {
			w.failf("in the end %s has %s prepared", stepDrivers[at], uid)
		}
	}
	if left := w.desk.claims.List(); len(left) > 0 {
		w.failf("in the end %+v are recorded", left)
	}
}
