package admission

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology/memory"
)

// rereadTimeout is how long a pod waits for what may be out of date to be looked at again.
const rereadTimeout = time.Second

// Stale is what may be otherwise by now than it is known; several are or-ed together.
type Stale int

// What may be stale.
const (
	// StaleMachine: an administrator may have turned memory into huge pages, or back.
	StaleMachine Stale = 1 << iota
	// StaleNode: the scheduler may have seen labels of the node of which its watch has yet to tell.
	StaleNode
)

// stale is what a pod would be refused for that may be otherwise by now; 0: nothing.
func (d *Decision) stale() Stale {
	switch {
	case d.Outcome == Admit:
		return 0
	case d.Reason == ReasonNodeAffinity:
		return StaleNode
	case d.kind == planned && mayHaveGrown(d.Pod, d.Case.Err):
		return StaleMachine
	default:
		return 0
	}
}

// reread has that looked at again, once for each pod. It returns false if the pod does not wait for
// it.
func (a *admitter) reread(ctx context.Context, e *entry, what Stale) bool {
	if a.cfg.Reread == nil || what == 0 || e.tries.reread&what != 0 {
		return false
	}
	e.tries.reread |= what
	a.pods.move(e, rereading, e.has)
	a.start(ctx, e, func(ctx context.Context) completion {
		ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
		defer cancel()
		a.cfg.Reread(ctx, what)
		return completion{}
	})
	return true
}

// mayHaveGrown reports whether the pod lacks memory or huge pages, which an administrator can turn
// into each other.
func mayHaveGrown(pod *v1.Pod, err error) bool {
	r, ok := errors.AsType[*allocation.Rejection](err)
	if !ok {
		return false
	}
	if r.Reason == allocation.ReasonTopology {
		return len(memory.PodRequests(pod)) > 0
	}
	return memory.Refused(r) || r.Reason == "OutOfmemory" ||
		strings.HasPrefix(r.Reason, "OutOf"+v1.ResourceHugePagesPrefix)
}
