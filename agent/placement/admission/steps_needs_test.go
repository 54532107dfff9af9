package admission

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"

	"github.com/numalet/numalet/agent/placement/allocation"
)

// lacking is what a pod may lack, mostly nothing.
func (w *walk) lacking() decide.Lack {
	return [...]decide.Lack{{}, {}, {}, {}, {}, {}, lacksKey, unknowing}[w.r.IntN(8)]
}

// need has what a pod needs appear, disappear or become unknown.
func (w *walk) need() bool {
	waits := func(t *tenant) bool { return t.known && t.said == decide.Wait && t.aside }
	t, l := w.pick(waits), decide.Lack{}
	if t == nil || w.r.IntN(2) == 0 {
		t, l = w.pick(func(t *tenant) bool { return t.known }), w.lacking()
	}
	if t == nil {
		return false
	}
	w.tell("  %+v", l)
	w.needs.set(t.uid, l)
	w.desk.queue.Poke()
	return true
}

// hinders is what keeps the pod from being given anything now.
func (w *walk) hinders(t *tenant) decide.Lack {
	h := w.site.hardware
	view := allocation.View{CPUs: h.CPUs, Memory: h.Memory}
	if w.wait == 0 || t.alive || t.held != nil || !view.Needs(t.pod) {
		return decide.Lack{}
	}
	lack, _ := w.needs.now(t.uid)
	return lack
}

// needed checks what is followed, and that who waits for what it needs has nothing of the node.
func (w *walk) needed() {
	w.needs.mu.Lock()
	defer w.needs.mu.Unlock()
	if len(w.needs.early) > 0 {
		w.failf("what %v need was forgotten while it was asked", w.needs.early)
	}
	p := w.desk.queue.admitter.line
	for uid := range w.needs.begun {
		if e := p.Find(uid); e == nil || e.State == record.Rejected || !e.Inquiry.Begun {
			w.failf("what %s needs is followed for nobody", uid)
		}
	}
	for _, e := range p.Order {
		if e.State != record.Deferred && e.State != record.HeldBack {
			continue
		}
		if has, _ := p.Ledger.Get(e.Pod.UID); e.IsReserved() || len(has.Requests) > 0 ||
			!has.Assigned.CPUs().IsEmpty() && !w.records(e.Pod.UID) {
			w.failf("%s waits for what it needs and has %+v", e.Pod.UID, has)
		}
	}
}

func (w *walk) records(uid types.UID) bool {
	_, has := w.desk.store.State().Pods[uid]
	return has
}
