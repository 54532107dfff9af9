package admission

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
)

// told is what there is to say of an entry.
type told struct {
	last Result // what was reported last
	// basis is that of the last decision, until it is final.
	basis *basis
	// tried is the last plan, until it is reported.
	tried *Tried
	// blamed says whose call the rejection comes of.
	blamed string
	// causes are the messages of waits for a device plugin that are news of their own; bounded.
	causes []string
}

// mostCauses bounds told.causes: a plugin may fail with other words each time.
const mostCauses = 8

// newCause reports whether the pod waits for a device plugin for a cause that was not told before.
func (t *told) newCause(r Result) bool {
	if r.Outcome != Wait || r.Reason != ReasonWaitPlugin || len(t.causes) == mostCauses ||
		slices.Contains(t.causes, r.Message) {
		return false
	}
	t.causes = append(t.causes, r.Message)
	return true
}

func (t *told) decided(d Decision, b *basis, took time.Duration) {
	t.basis = b
	if d.kind == planned || d.kind == adopted {
		t.tried = &Tried{Plan: d.Case.Plan, Err: d.Case.Err, Took: took}
	}
}

// basis is what a decision was made from. Many are kept, of pods that nobody may ever ask about: it
// has the ledger, most of which one has in common with the next, and not the room made of it.
type basis struct {
	snapshot Snapshot
	request  request
	plan     allocation.Plan
	err      error
	ignored  []string
}

func basisOf(s Snapshot, r request, d Decision) *basis {
	return &basis{s, r, d.Case.Plan, d.Case.Err, d.ignored}
}

// record explains the outcome that came of the decision.
func (b *basis) record(v explain.Verdict, ignored []string) explain.Record {
	c := explain.Case{
		Room: b.snapshot.now(&b.request), Pod: b.request.pod, Plan: b.plan, Err: b.err,
	}
	var r explain.Record
	if v.Outcome == string(Admit) {
		r = c.Explain()
		r.Verdict = v
	} else {
		r = c.Judged(v)
	}
	r.Remarks.Ignored = slices.Concat(ignored, b.ignored)
	return r
}

// explanations are those of the last outcome of each pod that the queue knows. An admitted pod's is
// made when it is asked for.
type explanations struct {
	mu    sync.Mutex // guards byUID
	byUID map[types.UID]explanation
}

type explanation struct {
	namespace, name string
	at              time.Time
	record          func() explain.Record
}

// put explains an outcome, and returns that in short for one that is told with it.
func (x *explanations) put(r Result, b *basis, ignored []string) (short string) {
	verdict := explain.Verdict{
		At: time.Now(), Outcome: string(r.Outcome), Reason: r.Reason, Message: r.Message,
	}
	next := explanation{namespace: r.Pod.Namespace, name: r.Pod.Name, at: verdict.At}
	next.record = sync.OnceValue(func() explain.Record { return b.record(verdict, ignored) })
	if r.Outcome != Admit {
		short = next.record().Short()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byUID == nil {
		x.byUID = map[types.UID]explanation{}
	}
	x.byUID[r.Pod.UID] = next
	return short
}

func (x *explanations) drop(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byUID, uid)
}

// find explains the last decision on a pod of that name.
func (x *explanations) find(namespace, name string) (explain.Record, bool) {
	last, ok := x.last(namespace, name)
	if !ok {
		return explain.Record{}, false
	}
	return last.record(), true
}

func (x *explanations) last(namespace, name string) (found explanation, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.byUID {
		if e.namespace == namespace && e.name == name && (!ok || e.at.After(found.at)) {
			found, ok = e, true
		}
	}
	return found, ok
}
