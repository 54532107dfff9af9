package admission

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
)

// hear takes what admission said and moves the pods of the model on.
func (w *walk) hear() {
	w.desk.mu.Lock()
	said := w.desk.said
	w.desk.said = nil
	w.desk.mu.Unlock()
	var admitted []*tenant
	for _, r := range said {
		w.tell("  %s: %s %s %s", r.Pod.UID, r.Outcome, r.Reason, r.Message)
		t := w.find(r.Pod.UID)
		if r.Outcome == decide.Released {
			w.reported(r.Pod.UID)
			continue
		}
		switch {
		case t == nil || t.going:
			w.failf("%s of %s, which was released", r.Outcome, r.Pod.UID)
			continue
		case t.said == decide.Admit || t.said == decide.Reject:
			w.failf("%s of %s after %s", r.Outcome, t.uid, t.said)
		case t.alive && r.Outcome != decide.Admit:
			w.failf("%s of %s, which runs", r.Outcome, t.uid)
		case r.Outcome == decide.Wait && w.wait == 0 && !w.slow(t) && !isForClaim(r.Reason) &&
			!strings.Contains(r.Message, "knows of the release"):
			w.failf("%s waits, though nobody may", t.uid)
		}
		if isForClaim(r.Reason) && !isForClaim(t.reason) {
			t.troubledAt = time.Now() // the claim of another may end at this moment
		}
		t.said, t.reason = r.Outcome, r.Reason
		t.aside = t.aside || r.Reason == decide.ReasonWaitObjects
		if t.aside && r.Reason == decide.ReasonWaitResources {
			w.seen["Wait for room"]++
		}
		switch r.Outcome {
		case decide.Admit:
			admitted = append(admitted, t)
			w.seen["Admit"]++
		case decide.Wait:
			w.seen["Wait "+r.Reason]++
		default:
			w.seen["Reject"]++
			w.seen["Reject "+r.Reason]++
		}
	}
	w.admit(admitted)
}

// told takes that a pod is released.
func (w *walk) reported(uid types.UID) {
	if !w.releasing[uid] {
		w.failf("%s is released, and nobody has asked for that", uid)
	}
	delete(w.releasing, uid)
}

// slow reports whether the answer of a plugin or a driver of the pod has not come, or came late.
func (w *walk) slow(t *tenant) bool {
	if time.Since(t.troubledAt) < claimTime {
		return true
	}
	for i := range stepResources {
		if t.wants(i) &&
			(w.plugins.hangs[i].Load() || time.Since(w.plugins.recovered[i]) < time.Minute) {
			return true
		}
	}
	return false
}

// admit takes what those who were admitted hold now.
func (w *walk) admit(admitted []*tenant) {
	state := w.desk.store.State()
	anew := map[*tenant]*grant{}
	for _, t := range admitted {
		if lack := w.hinders(t); lack.Missing() && !t.inflight {
			w.failf("%s could not start and is admitted", t.uid)
		}
		before := t.held
		stored, has := state.Pods[t.uid]
		switch {
		case has && before != nil && written(stored) == before.text:
			w.seen["kept its own"]++
		case t.keeps || t.alive && before != nil:
			w.failf("%s had %v and has %v", t.uid, before, stored)
		case t.alive && !has:
			w.seen["runs without"]++
		case has:
			t.held, w.stale = grantOf(stored, w.site.epoch), true
			anew[t] = before
		default:
			t.held = nil
			anew[t] = before
		}
		if t.alive {
			w.seen["adopted"]++
		}
		t.keeps = false
	}
	slices.SortFunc(admitted, func(a, b *tenant) int { return a.number - b.number })
	for _, t := range admitted {
		if before, ok := anew[t]; ok {
			w.fresh(t, before)
			if !t.alive && !t.inflight {
				w.fits(t)
			}
		}
		w.count(t.held)
		if !t.alive && !t.leaving && w.r.IntN(8) > 0 {
			t.alive, t.worn = true, t.held
		}
	}
}

func (w *walk) count(g *grant) {
	if g == nil {
		return
	}
	if g.cpus != 0 {
		w.seen["has CPUs"]++
	}
	if len(g.blocks) > 0 {
		w.seen["has memory"]++
	}
	if len(g.devices) > 0 {
		w.seen["has devices"]++
	}
}

// fits checks that what is only counted is not promised beyond what there is, nor given to a pod though
// one before it waits for it.
func (w *walk) fits(last *tenant) {
	var sum, lasting amount
	n := int64(0)
	for _, t := range w.tenants {
		if t.known && t.said == decide.Admit {
			sum = sum.plus(t.total(w.site, true))
			n++
			if !t.leaving {
				lasting = lasting.plus(t.total(w.site, true))
			}
		}
	}
	for _, e := range w.desk.queue.admitter.line.Order {
		if e.Pod.UID == last.uid {
			break
		}
		if t := w.find(e.Pod.UID); e.State == record.Waiting && t.epoch == w.site.epoch {
			lasting = lasting.plus(t.total(w.site, true))
		}
	}
	if !lasting.within(w.site.amount(), last.total(w.site, true)) {
		w.failf("pods that stay and those that wait before %s request %+v of %+v", last.uid, lasting,
			w.site.amount())
	}
	if !sum.within(w.site.amount(), last.total(w.site, true)) || n > w.site.maxPods {
		w.failf("%d pods request %+v with %s, of %+v for %d", n, sum, last.uid, w.site.amount(),
			w.site.maxPods)
	}
}
