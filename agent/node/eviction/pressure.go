package eviction

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/mailbox"
)

// Pressure are the conditions that hold now. A Manager sets them; the node's status and admission, which
// are made before it, read them. The zero Pressure has none.
type Pressure struct {
	changes mailbox.Topic

	mu   sync.Mutex // guards hold
	hold []v1.NodeConditionType
}

// Conditions returns the conditions that hold, by name; nil: none. The slice must not be changed.
func (p *Pressure) Conditions() []v1.NodeConditionType {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold
}

// Changes are published when other conditions hold.
func (p *Pressure) Changes() mailbox.Source { return &p.changes }

func (p *Pressure) set(hold []v1.NodeConditionType) {
	p.mu.Lock()
	changed := !slices.Equal(p.hold, hold)
	p.hold = hold
	p.mu.Unlock()
	if changed {
		p.changes.Publish()
	}
}
