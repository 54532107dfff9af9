package decide

import (
	"errors"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Resizing says what becomes of an admitted pod that asks for other requests or limits.
type Resizing struct {
	// Reason is v1.PodReasonDeferred or v1.PodReasonInfeasible; "": the pod gets them.
	Reason, Message string
	// Rule names the rule that forbids it, as the kubelet's metrics do; "": none does.
	Rule string
	// Lack is the reason with which the kubelet would reject a pod for the same lack of room; "": it waits for
	// something else.
	Lack string
	// Expected: it has room once the terminating pods are gone.
	Expected bool
	// Held lists what the pod holds then; nil: what it has.
	Held *allocation.Pod
	// Decisions are how the nodes of what is added were chosen.
	Decisions []allocation.Decision
}

// Infeasible returns the decision that a rule forbids a resize.
func Infeasible(rule, message string) *Resizing {
	return &Resizing{Reason: v1.PodReasonInfeasible, Message: message, Rule: rule}
}

// Deferred returns the decision that a resize waits, for this.
func Deferred(message string) Resizing {
	return Resizing{Reason: v1.PodReasonDeferred, Message: message}
}

// ResizeRule is a check of a resize that room does not decide; nil: it may be.
type ResizeRule func(has, wants *v1.Pod) *Resizing

// Resize decides on the resize of an admitted pod. What does not grow needs no room.
func (s *Snapshot) Resize(r *Request, wants *Demand) Resizing {
	if s.ResizeRule != nil {
		if no := s.ResizeRule(r.Pod, wants.Pod); no != nil {
			return *no
		}
	}
	z := resizing{Snapshot: s, Request: r, wants: wants, grows: Growth(r.Requests, wants.Requests)}
	o := s.Ledger.Beside(r.In, nil)
	before := allocation.AddRequests(s.Ahead, s.Growth)
	plan, err := z.in(o, Greater(o.Requests[allocation.Terminating], before))
	if err == nil {
		return Resizing{Held: z.changed(plan), Decisions: plan.Decisions}
	}
	if _, never := z.assign(z.room(allocation.Others{}, z.Own).View); never != nil {
		return *Infeasible(ruleMachine, messageOf(never)) // whatever other pods give back
	}
	d := Deferred(messageOf(err))
	if refused, is := errors.AsType[*allocation.Rejection](err); is {
		d.Lack = refused.Reason
	}
	_, err = z.in(s.Ledger.BesideLasting(r.In, nil), before)
	d.Expected = err == nil
	return d
}

// ruleMachine is the rule that forbids what the machine could not give the pod if no other ran.
const ruleMachine = "exclusive_resources_unavailable"

// messageOf returns an allocator's error as it is: that it fails a resize is not unexpected.
func messageOf(err error) string {
	refused, is := errors.AsType[*allocation.Rejection](err)
	switch {
	case !is:
		return err.Error()
	case refused.Err != nil:
		return refused.Err.Error()
	}
	return refused.Message
}

// resizing is a resize that is decided on.
type resizing struct {
	*Snapshot
	*Request
	wants *Demand
	grows v1.ResourceList
}

// in returns what the pod gets beside what others hold and request. The error is a *Rejection.
func (z *resizing) in(o allocation.Others, requests v1.ResourceList) (plan allocation.Plan, err error) {
	room := z.room(o, z.Own)
	room.Others = []v1.ResourceList{o.Requests[allocation.Held], requests}
	if len(z.grows) > 0 {
		for _, one := range room.Shortages(z.wants.Pod) {
			if _, is := z.grows[one.Resource]; is {
				return plan, allocation.OutOf(one)
			}
		}
	}
	return z.assign(room.View)
}

// assign plans what is exclusive to the pod's containers.
func (z *resizing) assign(v allocation.View) (plan allocation.Plan, err error) {
	if !z.exclusive() {
		return plan, nil
	}
	v.Keep, v.Before = allocation.KeepResized, z.Pod
	v.Rules, v.Claims = z.wants.Rules, z.ResourceClaims
	return v.Plan(z.wants.Pod, nil)
}

// exclusive reports whether the pod has CPUs or memory of its own, or is to have some.
func (z *resizing) exclusive() bool {
	for _, c := range z.Own.Containers {
		if !c.CPUs().IsEmpty() || len(c.Memory()) > 0 {
			return true
		}
	}
	return (z.Hardware.CPUs != nil || z.Hardware.Memory != nil) && podspec.MayOwn(z.wants.Pod)
}

// changed returns what the pod holds by the plan; nil: what it has.
func (z *resizing) changed(plan allocation.Plan) *allocation.Pod {
	if len(plan.Pod.Containers) == 0 {
		return nil
	}
	held := z.Own
	held.Containers = plan.Pod.Containers
	for name, c := range held.Containers {
		if !reflect.DeepEqual(c, z.Own.Containers[name]) && !(c.IsEmpty() && z.Own.Containers[name].IsEmpty()) {
			return &held
		}
	}
	return nil
}

// Growth returns by how much the requests grow; those that do not are left out.
func Growth(has, wants v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, want := range wants {
		if more := want.DeepCopy(); want.Cmp(has[name]) > 0 {
			more.Sub(has[name])
			out[name] = more
		}
	}
	return out
}
