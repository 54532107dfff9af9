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

	"github.com/numalet/numalet/internal/await"
)

const (
	// maxPerPod is the number of config maps and secrets that one pod may use: each is a watch.
	maxPerPod = 500
	// defaultPeriod is the time between two reads of an object that is not watched.
	defaultPeriod = time.Minute
	// defaultWait is how long a caller waits, and patience how long once the API server is known to
	// refuse.
	defaultWait = 10 * time.Second
	patience    = time.Second
)

// user is a pod that uses an object, while it waits for admission or later.
type user struct {
	pod   types.UID
	waits bool
}

// follower follows the config maps and secrets that pods use.
type follower struct {
	cfg Config

	tasks await.Tasks // one for each entry that changes

	mu      sync.Mutex // guards the fields below, and the entries
	entries map[key]*entry
	uses    map[user]map[key]bool
}

func newFollower(cfg Config) *follower {
	return &follower{
		cfg: cfg, entries: map[key]*entry{}, uses: map[user]map[key]bool{},
	}
}

// release ends all uses of a user.
func (f *follower) release(by user) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.uses[by] {
		e := f.entries[k]
		delete(e.asked, by)
		if len(e.asked) == 0 {
			e.stop()
			delete(f.entries, k)
		}
	}
	delete(f.uses, by)
}

// get returns the object; it waits until that is known.
func (f *follower) get(ctx context.Context, by user, k key) (object, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Wait)
	defer cancel()
	e, err := f.use(by, k)
	if err != nil {
		return nil, err
	}
	if f.stale(e, by) {
		if err := f.read(ctx, e); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	f.await(ctx, e)
	return f.answer(e, by)
}

// answer returns what is known of the object, and records that the user asked.
func (f *follower) answer(e *entry, by user) (object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.asked[by] = true
	switch {
	case e.known && e.refused != nil:
		return nil, e.refused
	case e.known && e.object == nil:
		return nil, apierrors.NewNotFound(v1.Resource(string(e.kind)), e.name)
	case e.known:
		return e.object, nil
	case e.err != nil:
		return nil, unknown{fmt.Errorf("failed to sync %s cache: %w", e.kind, e.err)}
	default:
		return nil, unknown{fmt.Errorf("failed to sync %s cache: timed out waiting for the condition",
			e.kind)}
	}
}

// unknown says that the API server has not answered yet whether an object exists.
type unknown struct{ error }

// Unwrap returns the cause.
func (u unknown) Unwrap() error { return u.error }

// stale reports whether the object has to be read before the user gets it.
func (f *follower) stale(e *entry, by user) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.cfg.Strategy {
	case kubeletconfig.GetChangeDetectionStrategy:
		return true
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
		return e.known && !e.asked[by]
	default:
		return false
	}
}

// await returns when the entry is known, or will not be soon.
func (f *follower) await(ctx context.Context, e *entry) {
	patient := time.After(patience)
	for {
		select {
		case <-e.ready:
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

// use follows the object for the user.
func (f *follower) use(by user, k key) (*entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, known := f.entries[k]
	if f.uses[by][k] {
		return e, nil
	}
	if len(f.uses[by]) >= maxPerPod {
		return nil, fmt.Errorf("%s %q: the pod uses more than %d config maps and secrets; put "+
			"their data together", k.kind, k.name, maxPerPod)
	}
	if !known {
		e = newEntry(k)
		f.entries[k] = e
		e.stop = f.tasks.Go(func(ctx context.Context) { f.follow(ctx, e) })
	}
	if f.uses[by] == nil {
		f.uses[by] = map[key]bool{}
	}
	f.uses[by][k] = true
	e.asked[by] = false
	return e, nil
}
