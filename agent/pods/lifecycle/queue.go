package lifecycle

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// asks holds the pods to read, and when each was asked for last.
type asks struct {
	workqueue.TypedInterface[types.UID]

	mu     sync.Mutex // guards latest
	latest map[types.UID]time.Time
}

func newAsks() *asks {
	return &asks{TypedInterface: workqueue.NewTyped[types.UID](), latest: map[types.UID]time.Time{}}
}

func (a *asks) add(uid types.UID, now time.Time) {
	a.note(uid, now)
	a.Add(uid)
}

func (a *asks) note(uid types.UID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest[uid] = now
}

// take returns when a pod was asked for last, once; zero: a read that followed has begun.
func (a *asks) take(uid types.UID) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer delete(a.latest, uid)
	return a.latest[uid]
}

// each calls do for the pods of a queue until ctx ends. A pod that is added meanwhile comes again.
func each(ctx context.Context, q workqueue.TypedInterface[types.UID], do func(types.UID)) {
	stop := context.AfterFunc(ctx, q.ShutDown)
	defer stop()
	for {
		uid, over := q.Get()
		if over || ctx.Err() != nil {
			return
		}
		do(uid)
		q.Done(uid)
	}
}
