package report

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/explain"
)

// explanations holds the explanation of the last outcome of each pod in the queue. An admitted pod's
// explanation is made on request.
type explanations struct {
	mu    sync.Mutex // guards byUID
	byUID map[types.UID]explanation
}

type explanation struct {
	namespace, name string
	at              time.Time
	record          func() explain.Record
}

// put keeps the explanation of an outcome and returns it.
func (x *explanations) put(r Result, b *decide.Basis, ignored []string) func() explain.Record {
	verdict := explain.Verdict{
		At: time.Now(), Outcome: string(r.Outcome), Reason: r.Reason, Message: r.Message,
	}
	next := explanation{namespace: r.Pod.Namespace, name: r.Pod.Name, at: verdict.At}
	next.record = sync.OnceValue(func() explain.Record { return b.Record(verdict, ignored) })
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byUID == nil {
		x.byUID = map[types.UID]explanation{}
	}
	x.byUID[r.Pod.UID] = next
	return next.record
}

func (x *explanations) drop(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byUID, uid)
}

// Explained explains the last decision on a pod of that name; any goroutine may call it.
func (r *Reporter) Explained(namespace, name string) (explain.Record, bool) {
	last, ok := r.explanations.last(namespace, name)
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
