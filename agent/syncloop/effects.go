package syncloop

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/resize"
	"github.com/numalet/numalet/agent/status"
)

// carryOut does what follows from an event. Nothing of it blocks.
func (l *Loop) carryOut(f pod.Effect) {
	switch f.Kind {
	case pod.Submit:
		l.cfg.Admission.Submit(f.Pod, f.Adopt)
	case pod.Leave:
		l.cfg.Admission.Leaving(f.Pod.UID, f.Ended)
	case pod.Release:
		l.cfg.Admission.Release(f.Pod.UID)
	case pod.Run:
		l.cfg.Workers.Update(podworker.Desired{Pod: f.Pod})
	case pod.Terminate, pod.Remove:
		l.cfg.Workers.Update(ending(f))
	case pod.Hasten:
		l.cfg.Workers.Hasten(ending(f))
	case pod.Write:
		l.write(f)
	case pod.Clear:
		l.cfg.Statuses.Cleared(f.Pod.UID)
	case pod.Infeasible:
		l.infeasible(f)
	case pod.Forget:
		l.cfg.Statuses.Forget(f.Pod.UID)
	case pod.Tell:
		eventType := v1.EventTypeNormal
		if f.Warning {
			eventType = v1.EventTypeWarning
		}
		l.cfg.Tell(f.Pod, eventType, f.Why.Reason, explain.Event(f.Why.Message, f.Why.Explained))
	default:
		panic(fmt.Sprintf("syncloop: effect %q", f.Kind))
	}
}

// ending is what a worker is told that ends a pod.
// infeasible tells that a pod is not resized, unless its status said so before the agent was started.
func (l *Loop) infeasible(f pod.Effect) {
	why := l.cfg.Statuses.Infeasible(f.Pod, f.Wanted)
	if why != "" && !status.TellsOfResize(f.Wanted, why) {
		l.cfg.Tell(f.Wanted, v1.EventTypeWarning, "ResizeInfeasible", resize.Event(f.Wanted, why))
	}
}

func ending(f pod.Effect) podworker.Desired {
	return podworker.Desired{Pod: f.Pod, Stop: &podworker.Stop{
		Grace:  cmp.Or(f.Grace, podworker.Grace(f.Pod)),
		Reason: f.Why.Reason, Message: f.Why.Message,
		Remove: f.Kind != pod.Terminate, Orphan: f.Orphan,
	}}
}

// write records a status that does not come from the runtime.
func (l *Loop) write(f pod.Effect) {
	uid, why := f.Pod.UID, status.Reason{Reason: f.Why.Reason, Message: f.Why.Message}
	switch f.Status {
	case pod.StatusKept:
		l.cfg.Statuses.Follow(f.Pod, f.Wanted)
	case pod.StatusPending:
		l.cfg.Statuses.Pending(f.Pod, f.Wanted)
	case pod.StatusAdmitted:
		l.cfg.Statuses.Admitted(uid)
	case pod.StatusWaiting:
		l.cfg.Statuses.Waiting(uid, why)
	case pod.StatusRejected:
		l.cfg.Statuses.Rejected(uid, why)
	default:
		panic(fmt.Sprintf("syncloop: status %q", f.Status))
	}
}
