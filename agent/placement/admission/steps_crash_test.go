package admission

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing/synctest"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

func (w *walk) crash() bool {
	w.desk.stop()
	w.fall(w.r.IntN(8) == 0)
	w.open()
	return true
}

// fall is what a crash does to the model: those that no source desires have no more than the record
// and what runs of them, and those that were rejected have failed for good. Some sandboxes have
// died too.
func (w *walk) fall(all bool) {
	w.heal()
	for _, t := range slices.Clone(w.tenants) {
		t.alive = t.alive && !all && w.r.IntN(8) > 0
		t.desired = t.desired && (!t.leaving && t.said != decide.Reject || t.again)
		t.known, t.leaving, t.ended, t.again, t.going = false, false, false, false, false
		t.keeps = false
		if t.held == nil && !t.desired {
			w.drop(t)
		}
	}
}

// torn crashes while something is being written: the file is the one from before or the one from
// after. It goes on with the one from before, and a part of what was written then: at its end, or
// beside it where the file was begun anew.
func (w *walk) torn() bool {
	if w.broken {
		w.disk()
	}
	synctest.Wait()
	w.check()
	before, err := os.ReadFile(w.path())
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	version := w.desk.store.State().Version
	var released *tenant
	if w.r.IntN(2) == 0 {
		released = w.pick(func(t *tenant) bool { return t.held != nil && !t.again })
	}
	if released != nil {
		released.alive = false
		w.entitle()
		w.releases(released)
	} else {
		w.add()
	}
	for range w.r.IntN(2) * 1000 {
		if w.desk.store.State().Version != version {
			break // written, and the queue may not know
		}
		runtime.Gosched()
	}
	w.desk.stop()
	after, err := os.ReadFile(w.path())
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	if after != nil {
		state, err := store.ReadState(w.path())
		if err != nil {
			w.failf("%v", err)
		}
		if state.Version > version {
			w.seen["commit torn"]++
		}
		w.overlaps(state)
	}
	w.tear(before, after)
	if released != nil {
		released.desired, released.alive = false, false
	}
	w.fall(false)
	w.open()
	return true
}

func (w *walk) tear(before, after []byte) {
	var err error
	line, appended := bytes.CutPrefix(after, before)
	switch {
	case before == nil:
		err = os.RemoveAll(w.path())
	case appended && len(line) > 0:
		line, _, _ = bytes.Cut(line, []byte("\n")) // of several commits the first
		before = append(before, line[:w.r.IntN(len(line)+1)]...)
		err = os.WriteFile(w.path(), before, 0o600)
	default:
		err = os.WriteFile(w.path(), before, 0o600)
	}
	if err == nil {
		err = os.WriteFile(files.Temporary(w.path()), after[:w.r.IntN(len(after)+1)], 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// overlaps checks a file of which nobody was told.
func (w *walk) overlaps(state allocation.State) {
	var cpus mask
	for _, uid := range uids(state) {
		t := w.find(uid)
		if t == nil {
			w.failf("the file has %s, which was released", uid)
			continue
		}
		g := grantOf(state.Pods[uid], 0)
		if both := cpus & g.cpus; both != 0 {
			w.failf("the file has CPUs %s twice", both.set())
		}
		cpus |= g.cpus
	}
}

// lose crashes, and the file is gone: what runs says what it holds.
func (w *walk) lose() bool {
	w.desk.stop()
	if err := os.RemoveAll(w.path()); err != nil {
		w.t.Fatal(err)
	}
	w.forget()
	w.open()
	return true
}

func (w *walk) forget() {
	w.fall(false)
	for _, t := range slices.Clone(w.tenants) {
		t.held = nil
		if t.alive {
			t.held = t.worn
		}
		if t.held == nil && !t.desired {
			w.drop(t)
		}
	}
}

// damage crashes, and the file is cut short before the first line's end: what is cut off later is
// another time's.
func (w *walk) damage() bool {
	raw, err := os.ReadFile(w.path())
	if err != nil || len(raw) == 0 {
		return false
	}
	raw, _, _ = bytes.Cut(raw, []byte("\n"))
	w.desk.stop()
	if err := os.WriteFile(w.path(), raw[:w.r.IntN(len(raw))], 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.forget()
	w.open()
	aside, err := filepath.Glob(w.path() + ".corrupt-*")
	if err != nil || len(aside) != 1 {
		w.failf("the damaged file is %v, %v", aside, err)
	}
	for _, path := range aside {
		if err := os.Remove(path); err != nil {
			w.t.Fatal(err)
		}
	}
	return true
}

func (w *walk) reboot() bool {
	w.desk.stop()
	w.boots()
	w.claims.forget(w.r)
	w.fall(true)
	w.open()
	return true
}

// migrate goes on with other policies, on a machine that may have other CPUs and memory.
func (w *walk) migrate() bool {
	w.desk.stop()
	next := w.site.hull
	if w.r.IntN(3) == 0 {
		next.offline = w.gone()
	}
	if w.r.IntN(3) == 0 {
		next.refill(w.r)
	}
	w.site = newSite(w.t, w.r, next, w.site.epoch+1)
	w.tell("  to %s", w.site.text)
	w.fall(false)
	w.open()
	return true
}

// rebuild is what the agent does before it decides on anything.
func (w *walk) rebuild(ctx context.Context, store *store.Store) {
	var observed []cri.Pod
	for _, t := range w.tenants {
		if t.alive {
			observed = append(observed, w.observe(t))
		}
	}
	changes, err := handover.Rebuild(store.State(), observed, w.bootID(), nil)
	if err != nil {
		w.failf("%v", err)
	}
	if len(changes) > 0 {
		if err := store.Commit(ctx, changes...); err != nil {
			w.t.Fatal(err)
		}
	}
}

// observe is what the runtime says of a pod that runs.
func (w *walk) observe(t *tenant) cri.Pod {
	p := cri.Pod{
		UID: t.uid, Namespace: "default", Name: string(t.uid),
		Sandboxes: []cri.Sandbox{{ID: string(t.uid), Ready: true}},
	}
	for i := range t.wishes {
		c := cri.Container{
			Name: t.wishes[i].name, SandboxID: string(t.uid), State: cri.ContainerRunning,
		}
		if t.wishes[i].role == starts {
			c.State = cri.ContainerExited
		}
		if t.worn != nil {
			text, err := handover.Describe(c.Name, t.worn.pod.Containers[c.Name])
			if err != nil {
				w.t.Fatal(err)
			}
			if text != "" {
				c.Annotations = map[string]string{handover.Annotation: text}
			}
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

// submitAll has the sources name their pods after a restart, those that had a place first; a few
// come later.
func (w *walk) submitAll() {
	keeps := w.steady()
	for _, ran := range []bool{true, false} {
		for _, t := range w.tenants {
			had := t.said == decide.Admit
			if !t.desired || t.known || had != ran || w.r.IntN(6) == 0 {
				continue
			}
			t.keeps = keeps && had && t.held != nil && t.held.pod.BootID == w.bootID()
			w.submit(t)
		}
	}
}

// steady reports whether what pods have had is to be had again for certain: nothing has changed
// since all of them were placed, and of none the record was lost. Such a one may come first, wait,
// and claim what a pod has that is not known yet.
func (w *walk) steady() bool {
	var sum amount
	n := int64(0)
	for _, t := range w.tenants {
		lost := t.held == nil && t.said == decide.Admit && t.desired && !t.alive && w.site.assigns(t.order)
		if lost || t.held != nil && t.held.epoch != w.site.epoch {
			return false
		}
		if t.said == decide.Admit && t.desired {
			sum = sum.plus(t.total(w.site, false))
			n++
		}
	}
	return sum.within(w.site.amount(), amount{1, 1, 1}) && n <= w.site.maxPods
}

// assigns reports whether a pod gets anything that is recorded.
func (s *site) assigns(o *order) bool {
	for i := range stepResources {
		if o.wants(i) {
			return true
		}
	}
	for i := range o.wishes {
		if s.ownCPUs && o.exclusive(&o.wishes[i]) > 0 {
			return true
		}
	}
	return o.guaranteed && s.ownMemory
}
