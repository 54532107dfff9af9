package admission

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
)

// words are what there is to say of an entry.
type words struct {
	said  Result         // what was reported last
	facts explain.Record // of the last attempt, without a verdict
	// planned is the attempt itself, nil between attempts: the room is of its moment.
	planned *explain.Case
	// tried is the last plan, until it is reported.
	tried *Tried
}

// records are the explanations of the last decision on each pod that the queue knows. They are
// read from other goroutines.
type records struct {
	mu    sync.Mutex
	byUID map[types.UID]explain.Record
}

func (r *records) put(uid types.UID, record explain.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byUID == nil {
		r.byUID = map[types.UID]explain.Record{}
	}
	r.byUID[uid] = record
}

func (r *records) drop(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byUID, uid)
}

// Explained is the explanation of the last decision on a pod. Of several pods of that name, one
// that replaces another, it is the last one decided on.
func (q *Queue) Explained(namespace, name string) (found explain.Record, ok bool) {
	q.records.mu.Lock()
	defer q.records.mu.Unlock()
	for _, r := range q.records.byUID {
		if r.Namespace == namespace && r.Name == name && (!ok || r.At.After(found.At)) {
			found, ok = r, true
		}
	}
	return found, ok
}

// explain records why the outcome is what it is and returns that in short. What would fit is
// looked for only now that the outcome is another one, and only for pods that have no place.
func (q *Queue) explain(e *entry, r Result) string {
	verdict := explain.Verdict{
		At: time.Now(), Outcome: string(r.Outcome), Reason: r.Reason, Message: r.Message,
	}
	record := e.facts
	record.Verdict = verdict
	switch {
	case e.planned != nil && r.Outcome != Admit:
		record = e.planned.Judged(verdict)
	case e.planned == nil && record.UID == "": // decided without a plan
		record = explain.Case{
			Room: q.present(e, q.own(e), nil), Pod: e.pod, Plan: allocation.Plan{Pod: e.reserved},
		}.Judged(verdict)
	}
	record.Ignored = e.ignored
	q.records.put(e.pod.UID, record)
	return record.Short()
}
