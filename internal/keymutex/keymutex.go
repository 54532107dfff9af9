// Package keymutex has a mutex for each key.
package keymutex

import (
	"context"
	"sync"
)

// Mutex has a lock for each key. It keeps only keys that are locked or waited for. The zero value is
// ready, and safe for concurrent use.
type Mutex[K comparable] struct {
	mu  sync.Mutex // guards all, and callers of each
	all map[K]*entry
}

type entry struct {
	held    chan struct{} // has an element while the lock is held
	callers int           // how many hold it or wait for it
}

// Lock waits for the lock of k, or until ctx ends. unlock gives it back.
func (m *Mutex[K]) Lock(ctx context.Context, k K) (unlock func(), err error) {
	of := m.call(k)
	select {
	case of.held <- struct{}{}:
		return func() {
			<-of.held
			m.called(k, of)
		}, nil
	case <-ctx.Done():
		m.called(k, of)
		return nil, ctx.Err()
	}
}

func (m *Mutex[K]) call(k K) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.all[k]
	if of == nil {
		if m.all == nil {
			m.all = map[K]*entry{}
		}
		of = &entry{held: make(chan struct{}, 1)}
		m.all[k] = of
	}
	of.callers++
	return of
}

func (m *Mutex[K]) called(k K, of *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of.callers--; of.callers == 0 {
		delete(m.all, k)
	}
}
