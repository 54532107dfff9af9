package decide

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// Stale says what a snapshot may have wrong by now; several are or-ed together.
type Stale int

// The inputs that may be stale.
const (
	// StaleMachine: an administrator may have turned memory into huge pages, or back.
	StaleMachine Stale = 1 << iota
	// StaleNode: the scheduler may have seen labels of the node that the watch has yet to deliver.
	StaleNode
)

// Stale returns what is worth reading again before the pod is refused; 0: nothing.
func (d *Decision) Stale() Stale {
	switch {
	case d.Outcome == Admit:
		return 0
	case d.Kind == Checked:
		return d.stale
	case d.Kind == Planned && mayHaveGrown(d.Pod, d.Case.Room.Rules, d.Case.Err):
		return StaleMachine
	default:
		return 0
	}
}

// mayHaveGrown reports whether the pod lacks memory or huge pages, which an administrator can turn
// into each other.
func mayHaveGrown(pod *v1.Pod, rules topology.Rules, err error) bool {
	r, ok := errors.AsType[*allocation.Rejection](err)
	if !ok {
		return false
	}
	if r.Reason == allocation.ReasonTopology {
		return len(memory.PodRequests(pod, rules)) > 0
	}
	return memory.Refused(r) || r.Short == v1.ResourceMemory ||
		strings.HasPrefix(string(r.Short), v1.ResourceHugePagesPrefix)
}
