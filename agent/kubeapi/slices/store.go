package slices

import (
	"maps"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/numalet/numalet/internal/await"
)

// store is what the reflector maintains: slices by name.
type store struct {
	changed chan struct{}

	mu     sync.Mutex // guards slices
	slices map[string]*resourcev1.ResourceSlice
}

func newStore() store {
	return store{changed: make(chan struct{}, 1), slices: map[string]*resourcev1.ResourceSlice{}}
}

// all lists the slices by name.
func (s *store) all() []*resourcev1.ResourceSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*resourcev1.ResourceSlice, 0, len(s.slices))
	for _, name := range slices.Sorted(maps.Keys(s.slices)) {
		out = append(out, s.slices[name])
	}
	return out
}

func (s *store) replace(list []*resourcev1.ResourceSlice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slices = make(map[string]*resourcev1.ResourceSlice, len(list))
	for _, one := range list {
		s.slices[one.Name] = slim(one)
	}
	await.Wake(s.changed)
	return nil
}

func (s *store) put(one *resourcev1.ResourceSlice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slices[one.Name] = slim(one)
	await.Wake(s.changed)
	return nil
}

func (s *store) drop(one *resourcev1.ResourceSlice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.slices, one.Name)
	await.Wake(s.changed)
	return nil
}

// slim drops what nobody on a node needs.
func slim(one *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	one.ManagedFields = nil
	return one
}
