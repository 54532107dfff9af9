package objects

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// perPod holds what was made for pods, by pod and key. The zero value is ready for use.
type perPod[K comparable, V any] struct {
	mu   sync.Mutex // guards the fields below
	pods map[types.UID]map[K]V
}

func (p *perPod[K, V]) get(pod types.UID, k K) (V, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, ok := p.pods[pod][k]
	return held, ok
}

func (p *perPod[K, V]) put(pod types.UID, k K, held V) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods == nil {
		p.pods = map[types.UID]map[K]V{}
	}
	if p.pods[pod] == nil {
		p.pods[pod] = map[K]V{}
	}
	p.pods[pod][k] = held
}

func (p *perPod[K, V]) forget(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, pod)
}
