package event

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// remembered bounds the events kept in memory; the oldest goes first.
const remembered = 1000

// memory is a record.EventSink that keeps events where an API server would.
type memory struct {
	mu     sync.Mutex // guards events
	events map[string]*v1.Event
}

func newMemory() *memory { return &memory{events: map[string]*v1.Event{}} }

// Create keeps an event.
func (m *memory) Create(e *v1.Event) (*v1.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.events[e.Name]; !known && len(m.events) >= remembered {
		m.forgetOldestLocked()
	}
	m.events[e.Name] = e
	return e, nil
}

// Update replaces an event.
func (m *memory) Update(e *v1.Event) (*v1.Event, error) { return m.Create(e) }

// Patch changes an event that is kept still: it has come again.
func (m *memory) Patch(old *v1.Event, patch []byte) (*v1.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, ok := m.events[old.Name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("events"), old.Name)
	}
	before, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Event{})
	if err != nil {
		return nil, err
	}
	next := &v1.Event{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	m.events[old.Name] = next
	return next, nil
}

// forgetOldestLocked makes room for a tenth, so that not each new event looks at all.
func (m *memory) forgetOldestLocked() {
	for _, e := range m.sortedLocked()[:remembered/10] {
		delete(m.events, e.Name)
	}
}

func (m *memory) sortedLocked() []*v1.Event {
	return slices.SortedFunc(maps.Values(m.events), func(a, b *v1.Event) int {
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// list is a copy in order of time.
func (m *memory) list() []v1.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]v1.Event, 0, len(m.events))
	for _, e := range m.sortedLocked() {
		out = append(out, *e)
	}
	return out
}
