package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/eviction"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/syncloop"
)

// freeingWait is how long after its grace period the end of a pod is waited for.
const freeingWait = 30 * time.Second

// evictor evicts pods, each once, whoever finds that it is to go.
type evictor struct {
	active func() []*v1.Pod
	holds  func(types.UID) bool
	begin  func(eviction.Eviction)

	mu    sync.Mutex
	begun map[types.UID]time.Time // until when its end is waited for; zero: it is not
}

func newEvictor(n node, s statusDomain, holds func(types.UID) bool) *evictor {
	return &evictor{active: s.Active, holds: holds, begun: map[types.UID]time.Time{},
		begin: func(e eviction.Eviction) {
			n.events.Annotated(e.Pod, e.Annotations, v1.EventTypeWarning, eviction.ReasonEvicted, e.Message)
			s.events.Put(syncloop.Event{UID: e.Pod.UID, Event: pod.Event{
				Kind: pod.Killed, Grace: e.Grace, Why: pod.Why{
					Reason: eviction.ReasonEvicted, Message: e.Message, OwnLimit: e.OwnLimit,
				},
			}})
		}}
}

// pods lists the pods that may be evicted: those that have not ended and are not ending for it.
func (e *evictor) pods() []*v1.Pod {
	all := e.active()
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.begun, func(uid types.UID, _ time.Time) bool {
		return !slices.ContainsFunc(all, func(p *v1.Pod) bool { return p.UID == uid })
	})
	return slices.DeleteFunc(all, func(p *v1.Pod) bool {
		_, ends := e.begun[p.UID]
		return ends
	})
}

// evict evicts a pod, unless that was begun before.
func (e *evictor) evict(one eviction.Eviction) {
	if e.enter(one) {
		e.begin(one)
	}
}

func (e *evictor) enter(one eviction.Eviction) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, begun := e.begun[one.Pod.UID]; begun {
		return false
	}
	e.begun[one.Pod.UID] = time.Time{}
	if one.OwnLimit {
		e.begun[one.Pod.UID] = time.Now().Add(one.Grace + freeingWait)
	}
	return true
}

// freeing reports whether pods that exceeded a limit of their own are ending.
func (e *evictor) freeing() bool {
	now := time.Now()
	e.mu.Lock()
	waits := maps.Clone(e.begun)
	e.mu.Unlock()
	for uid, until := range waits {
		if now.Before(until) && e.holds(uid) {
			return true
		}
	}
	return false
}
