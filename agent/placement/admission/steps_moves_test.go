package admission

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation/store"
)

// move is a kind of step and how often it is taken, of all weights together. It returns false if
// there is nothing to take it with; then a pod is added or removed.
type move struct {
	name   string
	weight int
	take   func(*walk) bool
}

var moves = []move{
	{"add", 280, (*walk).add},
	{"delete", 150, (*walk).leave},
	{"release", 170, (*walk).release},
	{"force-delete", 70, (*walk).force},
	{"remove one that has no place", 90, (*walk).withdraw},
	{"desire again", 10, (*walk).again},
	{"source is late", 30, (*walk).late},
	{"plugin gone or back", 30, (*walk).reconnect},
	{"plugin with other devices", 20, (*walk).reoffer},
	{"health", 60, (*walk).health},
	{"what pods need", 60, (*walk).need},
	{"plugin hangs", 8, (*walk).hang},
	{"plugin refuses", 4, (*walk).refuse},
	{"claim comes or goes", 30, (*walk).claim},
	{"driver gone or back", 12, (*walk).serve},
	{"driver late or well", 15, (*walk).upset},
	{"claims cannot be read", 6, (*walk).silence},
	{"time passes", 20, (*walk).sleep},
	{"file cannot be written", 5, (*walk).disk},
	{"CPUs come or go", 8, (*walk).hotplug},
	{"crash", 14, (*walk).crash},
	{"crash while writing", 10, (*walk).torn},
	{"crash without the file", 5, (*walk).lose},
	{"crash with a damaged file", 5, (*walk).damage},
	{"reboot", 6, (*walk).reboot},
	{"migration", 8, (*walk).migrate},
}

const maxTenants = 9

func (w *walk) move() {
	total := 0
	for _, m := range moves {
		total += m.weight
	}
	n := w.r.IntN(total)
	for _, m := range moves {
		if n -= m.weight; n >= 0 {
			continue
		}
		w.tell("%s", m.name)
		if m.take(w) {
			w.seen["step "+m.name]++
			return
		}
		break
	}
	w.tell("add or force-delete")
	if !w.add() && !w.force() {
		w.disk() // all were released and cannot go
	}
}

func (w *walk) add() bool {
	if len(w.tenants) >= maxTenants {
		return false
	}
	w.pods++
	t := &tenant{order: newOrder(w.r, w.pods), desired: true}
	if w.hasClaims {
		t.chooseClaims(w.r)
	}
	w.tenants = append(w.tenants, t)
	w.tell("  %s: %s%v", t.uid, spec(t.pod), t.claims)
	w.needs.set(t.uid, w.lacking())
	w.arrive(t)
	w.submit(t)
	return true
}

// pick is one of those that are so.
func (w *walk) pick(is func(*tenant) bool) *tenant {
	var some []*tenant
	for _, t := range w.tenants {
		if is(t) && !t.going {
			some = append(some, t)
		}
	}
	if len(some) == 0 {
		return nil
	}
	t := some[w.r.IntN(len(some))]
	w.tell("  %s", t.uid)
	return t
}

func (w *walk) leave() bool {
	t := w.pick(func(t *tenant) bool {
		return t.known && !t.leaving && (t.said == decide.Admit || t.held != nil)
	})
	if t == nil {
		return false
	}
	t.leaving, t.ended = true, w.r.IntN(2) == 0
	w.desk.queue.Leaving(t.uid, t.ended)
	return true
}

// release gives back what a pod held that has terminated, or that no source desires any more.
func (w *walk) release() bool {
	return w.end(w.pick(func(t *tenant) bool {
		return (t.leaving || !t.desired) && (!t.again || !w.broken)
	}))
}

func (w *walk) force() bool {
	return w.end(w.pick(func(t *tenant) bool { return !t.again && (t.known || !t.desired) }))
}

func (w *walk) withdraw() bool {
	return w.end(w.pick(func(t *tenant) bool {
		return t.known && !t.again && (t.said == decide.Wait || t.said == decide.Reject)
	}))
}

func (w *walk) end(t *tenant) bool {
	if t == nil {
		return false
	}
	t.alive = false
	w.entitle()
	w.releases(t)
	w.stale = true
	switch {
	case t.again:
		synctest.Wait() // for Released
		w.drop(t)
		again := &tenant{order: t.order, desired: true}
		w.tenants = append(w.tenants, again)
		w.submit(again)
	case w.broken && t.held != nil:
		t.going, t.known, t.desired, t.alive = true, false, false, false
	default:
		w.drop(t)
	}
	return true
}

// releases has the queue release a pod, which must be told to have been.
func (w *walk) releases(t *tenant) {
	w.releasing[t.uid] = true
	w.desk.queue.Release(t.uid)
}

// again has a source desire a pod that terminates: it is submitted when it is released.
func (w *walk) again() bool {
	t := w.pick(func(t *tenant) bool {
		isStatic := len(t.claims) == 0
		return t.said == decide.Admit && t.known && t.leaving && !t.again && isStatic
	})
	if t == nil {
		return false
	}
	t.again = true
	return true
}

// late has a source name a pod that ran before the restart.
func (w *walk) late() bool {
	t := w.pick(func(t *tenant) bool { return t.desired && !t.known })
	if t == nil {
		return false
	}
	w.submit(t)
	return true
}

func (w *walk) reconnect() bool {
	at := w.r.IntN(len(stepResources))
	of, known := w.plugins.Inventory().Resources[stepResources[at]]
	switch {
	case !known:
		w.plugins.offer(w.r, at, w.site.nodes)
	case of.Connected && w.r.IntN(4) == 0:
		w.plugins.change(at, nil)
	default:
		of.Connected = !of.Connected
		w.plugins.recovered[at] = time.Now()
		w.plugins.change(at, &of)
	}
	w.tell("  %s", stepResources[at])
	w.desk.queue.Poke()
	return true
}

func (w *walk) reoffer() bool {
	at := w.r.IntN(len(stepResources))
	w.tell("  %s", stepResources[at])
	w.plugins.offer(w.r, at, w.site.nodes)
	w.desk.queue.Poke()
	return true
}

func (w *walk) health() bool {
	at := w.r.IntN(len(stepResources))
	w.tell("  %s", stepResources[at])
	defer w.desk.queue.Poke()
	return w.plugins.flip(w.r, at)
}

func (w *walk) hang() bool {
	at := w.r.IntN(len(stepResources))
	hangs := !w.plugins.hangs[at].Load()
	w.tell("  %s: %v", stepResources[at], hangs)
	w.plugins.hangs[at].Store(hangs)
	if !hangs {
		w.plugins.recovered[at] = time.Now()
		time.Sleep(10 * time.Second) // the calls under way end
	}
	return true
}

func (w *walk) refuse() bool {
	at := w.r.IntN(len(stepResources))
	refuses := !w.plugins.refuses[at].Load() && w.r.IntN(5) == 0
	w.tell("  %s: %v", stepResources[at], refuses)
	w.plugins.refuses[at].Store(refuses)
	w.plugins.recovered[at] = time.Now()
	return true
}

func (w *walk) sleep() bool {
	time.Sleep(time.Duration(1+w.r.IntN(60)) * time.Second)
	return true
}

// disk has writing fail, or succeed again: a folder is in the state file's place.
func (w *walk) disk() bool {
	if w.broken {
		w.heal()
		time.Sleep(15 * time.Second) // for what is tried again
		return true
	}
	place := w.path()
	err := os.Rename(place, w.kept())
	if errors.Is(err, fs.ErrNotExist) { // nothing was committed yet
		err = nil
	}
	if err = errors.Join(err, os.MkdirAll(filepath.Join(place, "full"), 0o700)); err != nil {
		w.t.Fatal(err)
	}
	w.broken = true
	return true
}

// path is the state file.
func (w *walk) path() string {
	if w.broken {
		return w.kept()
	}
	return filepath.Join(w.dir, store.FileName)
}

// kept is where the state file is while the disk is broken.
func (w *walk) kept() string { return filepath.Join(w.dir, "kept") }

func (w *walk) heal() {
	if !w.broken {
		return
	}
	w.broken, w.stale = false, true
	err := os.RemoveAll(w.path())
	if _, lost := os.Lstat(w.kept()); err == nil && lost == nil {
		err = os.Rename(w.kept(), w.path())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) hotplug() bool {
	w.site = w.site.hotplug(w.t, w.gone())
	w.tell("  %s", w.site.text)
	w.desk.hardware.Store(&w.site.hardware)
	w.replugged = time.Now()
	w.desk.queue.Poke()
	return true
}

// gone is a few CPUs, or none.
func (w *walk) gone() (m mask) {
	for range w.r.IntN(4) * w.r.IntN(2) {
		m |= 1 << w.r.IntN(w.site.size())
	}
	if popcount((1<<w.site.size()-1)&^m) < 3 {
		return 0
	}
	return m
}
