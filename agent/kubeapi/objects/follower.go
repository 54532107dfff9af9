package objects

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

const (
	// maxPerPod is how many config maps and secrets one pod may use: each is a watch.
	maxPerPod = 500
	// defaultPeriod is after how long an object is read again that is not watched.
	defaultPeriod = time.Minute
	// defaultWait is how long one who asks waits, and patience how long once it is known that the
	// API server refuses.
	defaultWait = 10 * time.Second
	patience    = time.Second
)

// follower knows the config maps and secrets that pods use, as long as they do.
type follower struct {
	cfg Config

	mu      sync.Mutex      // guards what follows, and the entries
	ctx     context.Context // nil: nothing is followed
	entries map[key]*entry
	uses    map[types.UID]map[key]bool
	// goroutines are those of the entries.
	goroutines sync.WaitGroup
}

func newFollower(cfg Config) *follower {
	return &follower{
		cfg: cfg, entries: map[key]*entry{}, uses: map[types.UID]map[key]bool{},
	}
}

// run follows what pods use until ctx ends.
func (f *follower) run(ctx context.Context) {
	f.mu.Lock()
	f.ctx = ctx
	for _, e := range f.entries {
		f.followLocked(e)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.ctx = nil // nothing is followed from now on
	f.mu.Unlock()
	f.goroutines.Wait()
}

// release says that the pod uses nothing any more.
func (f *follower) release(pod types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.uses[pod] {
		e := f.entries[k]
		delete(e.told, pod)
		if len(e.told) == 0 {
			e.stopLocked()
			delete(f.entries, k)
		}
	}
	delete(f.uses, pod)
}

// get waits until the object is known.
func (f *follower) get(ctx context.Context, pod types.UID, k key) (object, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Wait)
	defer cancel()
	e, err := f.use(pod, k)
	if err != nil {
		return nil, err
	}
	if f.stale(e, pod) {
		if err := f.read(ctx, e); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	f.await(ctx, e)
	f.mu.Lock()
	defer f.mu.Unlock()
	e.told[pod] = true
	switch {
	case e.known && e.refused != nil:
		return nil, e.refused
	case e.known && e.object == nil:
		return nil, apierrors.NewNotFound(v1.Resource(string(k.kind)), k.name)
	case e.known:
		return e.object, nil
	case e.err != nil:
		return nil, fmt.Errorf("failed to sync %s cache: %w", k.kind, e.err)
	default:
		return nil, fmt.Errorf("failed to sync %s cache: timed out waiting for the condition",
			k.kind)
	}
}

// stale reports whether the object has to be read before the pod is told of it.
func (f *follower) stale(e *entry, pod types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.cfg.Strategy {
	case kubeletconfig.GetChangeDetectionStrategy:
		return true
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
		return e.known && !e.told[pod]
	default:
		return false
	}
}

// await returns when the entry is known, or will not be soon.
func (f *follower) await(ctx context.Context, e *entry) {
	patient := time.After(patience)
	for {
		select {
		case <-e.settled:
			return
		case <-ctx.Done():
			return
		case <-patient:
			if f.failed(e) {
				return
			}
			patient = time.After(patience)
		}
	}
}

func (f *follower) failed(e *entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return e.err != nil
}

// use follows the object for the pod.
func (f *follower) use(pod types.UID, k key) (*entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, known := f.entries[k]
	if f.uses[pod][k] {
		return e, nil
	}
	if len(f.uses[pod]) >= maxPerPod {
		return nil, fmt.Errorf("%s %q: the pod uses more than %d config maps and secrets; put "+
			"their data together", k.kind, k.name, maxPerPod)
	}
	if !known {
		e = newEntry(k)
		f.entries[k] = e
		f.followLocked(e)
	}
	if f.uses[pod] == nil {
		f.uses[pod] = map[key]bool{}
	}
	f.uses[pod][k] = true
	e.told[pod] = false
	return e, nil
}
