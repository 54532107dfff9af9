package eviction

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Once evicts each pod once, even if several components decide to.
type Once struct {
	active func() []*v1.Pod
	begin  func(Eviction)

	mu    sync.Mutex          // guards begun
	begun sets.Set[types.UID] // pods that are being evicted and have not ended
}

// NewOnce begins evictions of the active pods, whose list it may change, with begin.
func NewOnce(active func() []*v1.Pod, begin func(Eviction)) *Once {
	return &Once{active: active, begin: begin, begun: sets.Set[types.UID]{}}
}

// Pods lists the pods that may be evicted: those that have not ended and are not ending for it.
func (e *Once) Pods() []*v1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.active() // mu is held: no eviction begins between this list and the new begun
	still := sets.Set[types.UID]{}
	defer func() { e.begun = still }()
	return slices.DeleteFunc(all, func(p *v1.Pod) bool {
		ends := e.begun.Has(p.UID)
		if ends {
			still.Insert(p.UID)
		}
		return ends
	})
}

// Evict evicts a pod, unless that was begun before.
func (e *Once) Evict(one Eviction) {
	if e.enter(one) {
		e.begin(one)
	}
}

// enter reports whether the pod is not being evicted yet; from now on it is.
func (e *Once) enter(one Eviction) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	begun := e.begun.Has(one.Pod.UID)
	e.begun.Insert(one.Pod.UID)
	return !begun
}
