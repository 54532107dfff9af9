package kubeapi

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
)

// Kept holds the objects of one kind as a reflector delivers them, without their managed fields,
// which a node does not need and which are a third of a pod. It owns the objects that it is given.
type Kept[T Object] struct {
	changed chan struct{}

	mu      sync.Mutex // guards the fields below
	objects map[types.NamespacedName]T
	doubted bool // a resource version does not identify an object's content
}

// NewKept returns a Kept without objects.
func NewKept[T Object]() *Kept[T] {
	return &Kept[T]{changed: make(chan struct{}, 1), objects: map[types.NamespacedName]T{}}
}

// Changed has a value when All may return something else.
func (k *Kept[T]) Changed() <-chan struct{} { return k.changed }

// All returns the objects in any order.
func (k *Kept[T]) All() []T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.objects))
}

// Distrust makes the next list count as it is, since it comes from another history.
func (k *Kept[T]) Distrust() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubted = true
}

// Store returns the reflector's store. Unchanged objects of a list keep their pointers.
func (k *Kept[T]) Store() Store[T] { return Store[T]{Put: k.put, Drop: k.drop, All: k.replace} }

func (k *Kept[T]) replace(list []T) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects := make(map[types.NamespacedName]T, len(list))
	for _, one := range list {
		one.SetManagedFields(nil)
		name := nameOf(one)
		if was, had := k.objects[name]; had && !k.doubted && was.GetUID() == one.GetUID() &&
			was.GetResourceVersion() == one.GetResourceVersion() && one.GetResourceVersion() != "" {
			one = was
		}
		objects[name] = one
	}
	k.objects, k.doubted = objects, false
	await.Wake(k.changed)
	return nil
}

func (k *Kept[T]) put(one T) error {
	one.SetManagedFields(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[nameOf(one)] = one
	await.Wake(k.changed)
	return nil
}

func (k *Kept[T]) drop(one T) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.objects, nameOf(one))
	await.Wake(k.changed)
	return nil
}

func nameOf[T Object](one T) types.NamespacedName {
	return types.NamespacedName{Namespace: one.GetNamespace(), Name: one.GetName()}
}
