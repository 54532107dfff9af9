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

// rereadTimeout is how long a pod waits for the machine to be looked at again.
const rereadTimeout = time.Second

// reread has the machine looked at again, once for each pod that would be refused for want of what
// may be there by now. It returns false if the pod does not wait for that.
func (a *admitter) reread(ctx context.Context, e *entry, err error) bool {
	if a.cfg.Reread == nil || e.tries.reread || !mayHaveGrown(e.pod, err) {
		return false
	}
	e.tries.reread = true
	a.pods.move(e, rereading, e.has)
	a.start(ctx, e, func(ctx context.Context) completion {
		ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
		defer cancel()
		a.cfg.Reread(ctx)
		return completion{}
	})
	return true
}

// mayHaveGrown reports whether the pod lacks memory or huge pages, which an administrator can turn
// into each other.
func mayHaveGrown(pod *v1.Pod, err error) bool {
	var r *allocation.Rejection
	if !errors.As(err, &r) {
		return false
	}
	if r.Reason == allocation.ReasonTopology {
		return len(memory.PodRequests(pod)) > 0
	}
	return memory.Refused(r) || r.Reason == "OutOfmemory" ||
		strings.HasPrefix(r.Reason, "OutOf"+v1.ResourceHugePagesPrefix)
}
