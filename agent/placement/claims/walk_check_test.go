package claims

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// check holds the records against the truth.
func (w *walk) check() {
	for _, d := range walkDrivers {
		for key, uid := range w.truth[d] {
			r := w.records[key]
			if r == nil || r.UID != uid || r.driver(d) == nil || r.driver(d).Stage == StageUnsent {
				w.Fatalf("%s: %s has %s prepared, and the record is %+v", w.last, d, uid, r)
			}
		}
	}
	for key, r := range w.records {
		if r.unprepared() || len(r.Users) == 0 {
			w.Fatalf("%s: the record of %s stays: %+v", w.last, key, r)
		}
		if len(r.ToPrepare()) > 0 && len(r.ToUnprepare()) > 0 {
			w.Fatalf("%s: %s is to be prepared and unprepared", w.last, key)
		}
		for _, u := range r.active() {
			if p := w.pods[u.UID]; p == nil || !slices.Contains(p.claims, key) || p.leaving {
				w.Fatalf("%s: %s is not a user of %s", w.last, u, key)
			}
		}
	}
	for uid, p := range w.pods {
		for _, key := range p.claims {
			if p.runs {
				w.checkRunning(uid, key)
			}
		}
	}
}

func (w *walk) checkRunning(uid types.UID, key types.NamespacedName) {
	r := w.records[key]
	if r == nil || !r.has(uid) {
		w.Fatalf("%s: %s runs, and does not use %s", w.last, uid, key)
	}
	for _, d := range r.Drivers {
		if w.truth[d.Name][key] != r.UID && d.Skips == (claim.Skip{}) {
			w.Fatalf("%s: %s runs without what %s prepares of %s", w.last, uid, d.Name, key)
		}
	}
}

// end has all pods leave and all drivers come back.
func (w *walk) end() {
	clear(w.down)
	for range 1000 {
		w.leave()
		w.send()
		for len(w.calls) > 0 {
			w.land()
		}
	}
	w.check()
	if len(w.records)+len(w.pods) > 0 {
		w.Fatalf("left are records %v and pods %v", w.records, w.pods)
	}
	for _, d := range walkDrivers {
		if len(w.truth[d]) > 0 {
			w.Fatalf("%s still has %v", d, w.truth[d])
		}
	}
}
