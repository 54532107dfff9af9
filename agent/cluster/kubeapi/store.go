package kubeapi

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Store is a reflector's store for an owner that keeps the objects of one type in its own way. All
// functions are required.
type Store[T any] struct {
	// Put gets a new or changed object, Drop one that is gone.
	Put, Drop func(T) error
	// All gets all existing objects; there may be none.
	All func([]T) error
}

var _ cache.ReflectorStore = Store[any]{}

// Add implements cache.ReflectorStore.
func (s Store[T]) Add(obj any) error { return give(obj, s.Put) }

// Update implements cache.ReflectorStore.
func (s Store[T]) Update(obj any) error { return give(obj, s.Put) }

// Delete implements cache.ReflectorStore.
func (s Store[T]) Delete(obj any) error { return give(obj, s.Drop) }

// Replace implements cache.ReflectorStore.
func (s Store[T]) Replace(found []any, version string) error {
	if err := checkVersion(version); err != nil {
		return err
	}
	all := make([]T, 0, len(found))
	take := func(one T) error {
		all = append(all, one)
		return nil
	}
	for _, obj := range found {
		if err := give(obj, take); err != nil {
			return err
		}
	}
	return s.All(all)
}

// Resync implements cache.ReflectorStore.
func (Store[T]) Resync() error { return nil }

func give[T any](obj any, to func(T) error) error {
	one, ok := obj.(T)
	if !ok {
		return fmt.Errorf("the API server sent a %T where a %T belongs", obj, one)
	}
	return to(one)
}
