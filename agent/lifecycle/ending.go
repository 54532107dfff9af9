package lifecycle

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
)

// settle is how long events of a pod that is being ended wait for the reads of whoever ends it:
// most events tell what he has done and looks at himself.
const settle = 500 * time.Millisecond

// endings are the pods that somebody ends now, or did a moment ago.
type endings struct {
	mu    sync.Mutex
	count map[types.UID]int
}

func newEndings() *endings { return &endings{count: map[types.UID]int{}} }

func (e *endings) add(uid types.UID, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count[uid] += n; e.count[uid] == 0 {
		delete(e.count, uid)
	}
}

func (e *endings) has(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[uid] > 0
}

// Ending says that the caller stops or removes what the runtime has of the pod, until done is
// called, and then looks at it.
func (o *Observer) Ending(uid types.UID) (done func()) {
	o.endings.add(uid, 1)
	return func() { o.later.add(func() { o.endings.add(uid, -1) }) }
}

// Recheck is Observe for the one who has stopped all containers that the pod had when it was last
// read, or has given it what is made. It asks for these alone, without a list; anything else there
// may be is not found.
func (o *Observer) Recheck(ctx context.Context, uid types.UID, made cri.Made) (cri.Pod, error) {
	newest, _, err := o.read(ctx, uid, func(ctx context.Context, last cri.Pod) (cri.Pod, error) {
		return o.cfg.Client.Recheck(ctx, last, made)
	})
	return newest, err
}

// Stopped notes that the caller has stopped the sandboxes, and is what is known of the pod then.
func (o *Observer) Stopped(uid types.UID, sandboxes []string) cri.Pod {
	r := o.cache.begin(uid)
	pod := r.last
	pod.ReadAt, pod.Sandboxes = time.Now(), slices.Clone(pod.Sandboxes)
	for i, s := range pod.Sandboxes {
		if slices.Contains(sandboxes, s.ID) {
			pod.Sandboxes[i].Ready = false
		}
	}
	newest, _ := o.cache.commit(r, pod)
	o.count()
	return newest
}

// readLater has the pod read after a while, unless that has been done or nothing of it is left.
func (o *Observer) readLater(uid types.UID, asked time.Time) {
	o.later.add(func() {
		if _, known := o.cache.get(uid); known {
			o.reads.add(uid, asked)
		}
	})
}
