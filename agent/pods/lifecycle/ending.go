package lifecycle

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
)

// settle is how long the events of a pod that is being ended wait: most of them report what its
// worker has done, and the worker reads the pod itself.
const settle = 500 * time.Millisecond

// endings has the pods that a worker ends now, or ended a moment ago.
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

// Ending announces that the caller stops or removes containers of the pod until it calls done, and
// reads the pod itself.
func (p *PLEG) Ending(uid types.UID) (done func()) {
	p.endings.add(uid, 1)
	return func() { p.later.add(func() { p.endings.add(uid, -1) }) }
}

// Recheck is Observe for a caller that has stopped all containers of its last observation, or has
// created those in made. It asks the runtime for these alone, without a list, and does not find
// others.
func (p *PLEG) Recheck(ctx context.Context, uid types.UID, made cri.Made) (cri.Pod, error) {
	newest, _, err := p.read(ctx, uid, func(ctx context.Context, last cri.Pod) (cri.Pod, error) {
		return p.cfg.Client.Recheck(ctx, last, made)
	})
	return newest, err
}

// Stopped records that the caller has stopped the sandboxes, and returns the observation then.
func (p *PLEG) Stopped(uid types.UID, sandboxes []string) cri.Pod {
	r := p.cache.begin(uid)
	pod := r.last
	pod.ReadAt, pod.Sandboxes = time.Now(), slices.Clone(pod.Sandboxes)
	for i, s := range pod.Sandboxes {
		if slices.Contains(sandboxes, s.ID) {
			pod.Sandboxes[i].Ready = false
		}
	}
	newest, _ := p.cache.commit(r, pod)
	p.metrics.count(p.cache)
	return newest
}
