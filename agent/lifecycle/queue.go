package lifecycle

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
)

// queue holds each pod at most once, in the order in which it was first added. A pod that was taken
// is not given out again until it is done; if it is added meanwhile, it is given out again then.
type queue struct {
	mu    sync.Mutex
	order []types.UID
	added map[types.UID]time.Time // the latest request, for the pods in order
	taken map[types.UID]bool

	wake chan struct{} // capacity 1: there may be something to take
}

func newQueue() *queue {
	return &queue{
		added: map[types.UID]time.Time{},
		taken: map[types.UID]bool{},
		wake:  make(chan struct{}, 1),
	}
}

func (q *queue) add(uid types.UID, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.added[uid]; !ok {
		q.order = append(q.order, uid)
	}
	q.added[uid] = now
	await.Wake(q.wake)
}

// take returns the first pod that nobody holds and when it was last added.
func (q *queue) take() (uid types.UID, added time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.order, func(uid types.UID) bool { return !q.taken[uid] })
	if i < 0 {
		return "", time.Time{}, false
	}
	uid = q.order[i]
	added = q.added[uid]
	q.order = slices.Delete(q.order, i, i+1)
	delete(q.added, uid)
	q.taken[uid] = true
	return uid, added, true
}

// each calls f for the pods that can be taken, until ctx ends or f returns false. Somebody then
// calls done.
func (q *queue) each(ctx context.Context, f func(uid types.UID, added time.Time) bool) {
	for {
		uid, added, ok := q.take()
		if ok && !f(uid, added) || !ok && !await.On(ctx, q.wake) {
			return
		}
	}
}

func (q *queue) done(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.taken, uid)
	await.Wake(q.wake)
}
