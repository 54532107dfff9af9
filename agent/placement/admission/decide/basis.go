package decide

import (
	"slices"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
)

// Basis keeps the inputs of a decision, to explain it later. Admission keeps one for each pod, and most
// are never read: so Basis has the ledger, which shares most of itself with the next one, and not the
// room made of it.
type Basis struct {
	snapshot Snapshot
	request  Request
	plan     allocation.Plan
	err      error
	ignored  []string
}

// BasisOf returns what the decision on the request was made from.
func BasisOf(s Snapshot, r Request, d Decision) *Basis {
	return &Basis{s, r, d.Case.Plan, d.Case.Err, d.Ignored}
}

// Record explains the outcome that the decision led to. ignored are preferences that are not
// followed beside those of the decision.
func (b *Basis) Record(v explain.Verdict, ignored []string) explain.Record {
	c := explain.Case{
		Room: b.snapshot.Now(&b.request), Pod: b.request.Pod, Plan: b.plan, Err: b.err,
	}
	var r explain.Record
	if v.Outcome == string(Admit) || v.Outcome == string(Resized) {
		r = c.Explain()
		r.Verdict = v
	} else {
		r = c.Judged(v)
	}
	r.Remarks.Ignored = slices.Concat(ignored, b.ignored)
	return r
}
