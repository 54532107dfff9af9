package allocation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// State is everything that is assigned, an immutable snapshot.
type State struct {
	// Version grows with each commit.
	Version uint64
	Pods    map[types.UID]Pod
	// Owed is what plugins are still to hear of, one for a resource of a pod, by these.
	Owed []Owed
}

// Pod is what one pod holds.
type Pod struct {
	UID       types.UID
	Namespace string
	Name      string
	// BootID is the kernel's boot id when the devices were allocated
	// (/proc/sys/kernel/random/boot_id). Answers of plugins are void under another one.
	BootID     string
	Containers map[string]Container
	// Version is that of the state with which this was put; 0: it was read from a file, or is in no
	// state.
	Version uint64
}

// List is every pod's assignment, in no order.
func (s State) List() []Pod { return slices.Collect(maps.Values(s.Pods)) }

// With returns the state after the changes: put entries replace or add, dropped ones go.
func (s State) With(changes []Change) State {
	next := State{Version: s.Version + 1, Pods: maps.Clone(s.Pods), Owed: s.Owed}
	if next.Pods == nil {
		next.Pods = map[types.UID]Pod{}
	}
	for _, c := range changes {
		switch {
		case c.Drop != "":
			delete(next.Pods, c.Drop)
		case c.Put.UID != "":
			c.Put.Version = next.Version
			next.Pods[c.Put.UID] = c.Put
		}
		for _, o := range c.Owe {
			next.owe(o)
		}
		if c.Settle.UID != "" {
			next.settle(c.Settle)
		}
	}
	return next
}

// Change is one step of a commit: Put a pod's assignment, or Drop that of a UID, each with what
// their plugins are to hear of that, or Settle what one has heard.
type Change struct {
	Put    Pod
	Drop   types.UID
	Owe    []Owed
	Settle Owed
}
