package agent

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/syncloop"
)

// evictor evicts pods, each once, whoever finds that it is to go.
type evictor struct {
	active func() []*v1.Pod
	begin  func(eviction.Eviction)

	mu    sync.Mutex          // guards begun
	begun sets.Set[types.UID] // pods that are being evicted and have not ended
}

func newEvictor(n node, s statusDomain) *evictor {
	return &evictor{active: s.Active, begun: sets.Set[types.UID]{},
		begin: func(e eviction.Eviction) {
			n.events.Annotated(e.Pod, e.Annotations, v1.EventTypeWarning, eviction.ReasonEvicted, e.Message)
			s.events.Put(syncloop.Killed(e.Pod.UID, evicted(e.Message, e.OwnLimit), e.Grace))
		}}
}

func evicted(message string, ownLimit bool) pod.Why {
	return pod.Why{Reason: eviction.ReasonEvicted, Message: message, OwnLimit: ownLimit}
}

// pods lists the pods that may be evicted: those that have not ended and are not ending for it.
func (e *evictor) pods() []*v1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.active() // whoever begins to end is among them, or ends after this
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

// evict evicts a pod, unless that was begun before.
func (e *evictor) evict(one eviction.Eviction) {
	if e.enter(one) {
		e.begin(one)
	}
}

// enter reports whether the pod is not being evicted yet; from now on it is.
func (e *evictor) enter(one eviction.Eviction) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	begun := e.begun.Has(one.Pod.UID)
	e.begun.Insert(one.Pod.UID)
	return !begun
}
