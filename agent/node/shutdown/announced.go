package shutdown

import (
	"sync/atomic"

	"github.com/numalet/numalet/internal/mailbox"
)

// Announced says whether the machine goes down. A Manager sets it; the node's status and admission,
// which are made before it, read it. The zero Announced says that it does not.
type Announced struct {
	changes mailbox.Topic
	now     atomic.Bool
}

// Now reports whether the machine goes down.
func (a *Announced) Now() bool { return a.now.Load() }

// Changes are published when that is another.
func (a *Announced) Changes() mailbox.Source { return &a.changes }

func (a *Announced) set(now bool) {
	if a.now.Swap(now) != now {
		a.changes.Publish()
	}
}
