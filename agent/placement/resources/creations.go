package resources

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/internal/await"
)

// creations tracks the shared containers that are being created, and the pods whose last
// observation may lack a created container.
type creations struct {
	mu    sync.Mutex // guards the fields below
	now   map[*creation]bool
	stale map[types.UID]time.Time // older observations of the pod do not count
}

// creation is a shared container that is being created.
type creation struct {
	uid  types.UID
	cpus cpuset.CPUSet
	done chan struct{}
}

// enter begins a creation in the present pool, which it reads under the lock, so that no round
// comes between.
func (c *creations) enter(uid types.UID, shared func() cpuset.CPUSet) *creation {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &creation{uid: uid, cpus: shared(), done: make(chan struct{})}
	if c.now == nil {
		c.now = map[*creation]bool{}
	}
	c.now[n] = true
	return n
}

// leave ends a creation; false: it was already ended.
func (c *creations) leave(n *creation) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.now[n] {
		return false
	}
	delete(c.now, n)
	c.outdateLocked(n.uid)
	close(n.done)
	return true
}

// outdate requires a new observation of the pod before the next round.
func (c *creations) outdate(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outdateLocked(uid)
}

func (c *creations) outdateLocked(uid types.UID) {
	if c.stale == nil {
		c.stale = map[types.UID]time.Time{}
	}
	c.stale[uid] = time.Now()
}

// await waits for containers that are being created on CPUs that left the pool, and rereads the
// pods whose containers were created since their last observation.
func (c *creations) await(ctx context.Context, shared cpuset.CPUSet, observer Observer) error {
	for _, n := range c.older(shared) {
		if !await.On(ctx, n.done) {
			return ctx.Err()
		}
	}
	return await.Each(c.outdated(observer), parallelCalls, func(s stalePod) error {
		_, err := observer.Reread(ctx, s.uid)
		if err == nil {
			c.observed(s)
		}
		return err
	})
}

func (c *creations) older(shared cpuset.CPUSet) (out []*creation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.now {
		if !n.cpus.IsSubsetOf(shared) {
			out = append(out, n)
		}
	}
	return out
}

// stalePod is a pod whose observations before at do not count.
type stalePod struct {
	uid types.UID
	at  time.Time
}

// outdated returns the pods that must be observed again.
func (c *creations) outdated(observer Observer) (out []stalePod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, at := range c.stale {
		if pod, ok := observer.Get(uid); ok && pod.ReadAt.After(at) {
			delete(c.stale, uid)
		} else {
			out = append(out, stalePod{uid, at})
		}
	}
	return out
}

// observed records an observation, unless the pod became stale again meanwhile.
func (c *creations) observed(s stalePod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stale[s.uid].Equal(s.at) {
		delete(c.stale, s.uid)
	}
}
