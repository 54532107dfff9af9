package syncloop

import (
	"cmp"
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
)

// carryOut carries out an effect. It never blocks.
func (l *Loop) carryOut(ctx context.Context, f pod.Effect) {
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
		if f.Orphan {
			klog.FromContext(ctx).Info("Removing a pod that no source desires", "pod", klog.KObj(f.Pod),
				"podUID", f.Pod.UID)
		}
		l.cfg.Workers.Update(ending(f))
	case pod.Hasten:
		l.cfg.Workers.Hasten(ending(f))
	case pod.Wake:
		l.cfg.Workers.Wake(f.Pod.UID)
	case pod.Write:
		l.cfg.Statuses.Write(f)
	case pod.Forget:
		l.cfg.Statuses.Forget(f.Pod.UID)
	case pod.AskResize:
		l.cfg.Admission.Resize(f.Shown())
	case pod.ApplyResize:
		l.cfg.Resized(f.Pod.UID)
	case pod.TellResize:
		l.tellResize(f)
	case pod.Tell:
		eventType := v1.EventTypeNormal
		if f.Warning {
			eventType = v1.EventTypeWarning
		}
		l.cfg.Tell(f.Pod, eventType, f.Why.Reason, explain.Event(f.Why.Message, f.Why.Explained))
	case pod.Restarted:
		l.cfg.Restarted(f.Pod)
	default:
		panic(fmt.Sprintf("syncloop: effect %q", f.Kind))
	}
}

// tellResize records an event about a resize. What the pod's status says already, from an earlier run of the
// agent, is no news.
func (l *Loop) tellResize(f pod.Effect) {
	eventType := v1.EventTypeNormal
	if f.Warning {
		eventType = v1.EventTypeWarning
	}
	say := func(reason, what string, p *v1.Pod, generation int64) {
		l.cfg.Tell(p, eventType, reason, resize.Event(what, p, generation, f.Why.Message))
	}
	switch f.Why.Reason {
	case v1.PodReasonDeferred, v1.PodReasonInfeasible:
		if !status.TellsOfResize(f.Wanted, f.Why.Reason, f.Why.Message) {
			say("Resize"+f.Why.Reason, "Pod resize "+cmp.Or(f.Why.Explained, f.Why.Reason), f.Wanted, f.Wanted.Generation)
		}
	case pod.ResizeStarted:
		say(f.Why.Reason, resize.Started, f.Pod, f.Resize.Generation)
	case pod.ResizeCompleted:
		say(f.Why.Reason, resize.Completed, f.Pod, f.Resize.Generation)
	case pod.ResizeError:
		say(f.Why.Reason, resize.Failed, f.Pod, f.Resize.Generation)
	}
}

// ending returns what a worker is to do that ends a pod.
func ending(f pod.Effect) podworker.Desired {
	return podworker.Desired{Pod: f.Pod, Stop: &podworker.Stop{
		Grace:  cmp.Or(f.Grace, podworker.Grace(f.Pod)),
		Reason: f.Why.Reason, Message: f.Why.Message, OwnLimit: f.Why.OwnLimit,
		Remove: f.Kind != pod.Terminate, Orphan: f.Orphan,
	}}
}
