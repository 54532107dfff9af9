package decide

import (
	"errors"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/nodestatus"
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
	// Basis explains that; nil: it has nothing of its own, or is refused.
	Basis *Basis
	// Victims are the pods that make way for a critical one, which waits for their end.
	Victims []types.UID
	// Short is the resource that is only counted and of which the node has too little; "": none is.
	Short v1.ResourceName
	// Trigger says why it was decided on; the line and the record set it.
	Trigger Trigger
}

// Trigger says why a resize is decided on, perhaps again, in the words of the kubelet's metrics.
type Trigger string

// The triggers. The kubelet's pods_removed is no case of its own: a pod gives back what it has once it has ended.
const (
	// PodUpdated: its source asks for it now, or asked before the agent began, the kubelet's pods_added.
	PodUpdated Trigger = "pod_updated"
	// PodTerminated: another pod gave something back.
	PodTerminated Trigger = "pod_terminated"
	// PodResized: another pod shrank, or its resize waits no longer.
	PodResized Trigger = "pod_resized"
	// Periodic: the node is another, or recording it failed; the kubelet would look every three minutes.
	Periodic Trigger = "periodic_retry"
)

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
	if no := ofPool(r, wants); no != nil {
		return *no
	}
	z := resizing{
		Snapshot: s, Request: r, wants: wants, grows: Growth(r.Requests, wants.Requests),
		before: allocation.AddRequests(s.Ahead, s.Growth),
	}
	o := s.Ledger.Beside(r.In, nil)
	plan, err := z.in(o, Greater(o.Requests[allocation.Terminating], z.before))
	if err == nil {
		return z.granted(plan)
	}
	if _, never := z.assign(z.room(allocation.Others{}, z.Own).View); never != nil {
		return *Infeasible(ruleMachine, messageOf(never)) // whatever other pods give back
	}
	d := Deferred(messageOf(err))
	if refused, is := errors.AsType[*allocation.Rejection](err); is {
		d.Lack, d.Short = refused.Reason, refused.Short
	}
	d.Expected = z.fits(s.Ledger)
	if !d.Expected && d.Short != "" && s.ResizePreempts && wants.Rank.Critical {
		d.Victims, d.Expected = z.preempt()
	}
	return d
}

// rulePool is the rule that a pod's pool, and what containers have of it, stay as they are.
const rulePool = "pod_level_pool"

// ofPool returns why a pod with a pool is not resized; nil: it has none, or other resources are changed. The
// kubelet's managers leave a pool as it is too.
func ofPool(r *Request, wants *Demand) *Resizing {
	pool := r.Own.Pool()
	for _, one := range []struct {
		pooled  bool
		name    v1.ResourceName
		message string
	}{
		{!pool.CPUs().IsEmpty(), v1.ResourceCPU,
			`Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`},
		{len(pool.Memory()) > 0, v1.ResourceMemory,
			`Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`},
	} {
		if one.pooled && !sameAmounts(r.Pod, wants.Pod, one.name) {
			return Infeasible(rulePool, one.message+", which gave CPUs or memory to the pod as a whole")
		}
	}
	return nil
}

// sameAmounts reports whether both, and their containers, request and limit the same amount.
func sameAmounts(a, b *v1.Pod, name v1.ResourceName) bool {
	same := func(a, b v1.ResourceRequirements) bool {
		request, limit := a.Requests[name], a.Limits[name]
		return request.Cmp(b.Requests[name]) == 0 && limit.Cmp(b.Limits[name]) == 0
	}
	before, after := podspec.ResourcesOf(a), podspec.ResourcesOf(b)
	for container, has := range before.Containers {
		if !same(has, after.Containers[container]) {
			return false
		}
	}
	none := v1.ResourceRequirements{}
	return same(ptr.Deref(before.Pod, none), ptr.Deref(after.Pod, none))
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
	// before sums what pods and resizes wait for that came before.
	before v1.ResourceList
}

// in returns what the pod gets beside what others hold and request. The error is a *Rejection.
func (z *resizing) in(o allocation.Others, requests v1.ResourceList) (plan allocation.Plan, err error) {
	if short := z.short(o, requests); len(short) > 0 {
		return plan, allocation.OutOf(short[0])
	}
	return z.assign(z.room(o, z.Own).View)
}

// short lists the resources that grow and of which the node has too little.
func (z *resizing) short(o allocation.Others, requests v1.ResourceList) []nodestatus.Shortage {
	if len(z.grows) == 0 {
		return nil
	}
	room := z.room(o, z.Own)
	room.Others = []v1.ResourceList{o.Requests[allocation.Held], requests}
	return slices.DeleteFunc(room.Shortages(z.wants.Pod), func(one nodestatus.Shortage) bool {
		_, grows := z.grows[one.Resource]
		return !grows
	})
}

// fits reports whether there is room once the terminating pods of the ledger are gone.
func (z *resizing) fits(l allocation.Ledger) bool {
	_, err := z.in(l.BesideLasting(z.In, nil), z.before)
	return err == nil
}

// preempt returns the pods that make way for a critical one, if that gives it room.
func (z *resizing) preempt() (victims []types.UID, ok bool) {
	missing := needOf(z.short(z.Ledger.BesideLasting(z.In, nil), z.before))
	victims, ok = victimsOf(missing, z.preemptable(&Request{In: z.In, Demand: *z.wants}))
	after := z.Ledger
	for _, uid := range victims {
		after = after.Without(uid)
	}
	if !ok || !z.fits(after) {
		return nil, false
	}
	return victims, true
}

// granted returns the decision that the pod gets what it asks for, with the plan for what is exclusive to it.
func (z *resizing) granted(plan allocation.Plan) (d Resizing) {
	if d.Held = z.changed(plan); d.Held != nil {
		r := *z.Request
		r.Demand = *z.wants
		d.Basis = &Basis{snapshot: *z.Snapshot, request: r, plan: plan}
	}
	return d
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
	return (z.Hardware.CPUs != nil || z.Hardware.Memory != nil) &&
		podspec.OwnOf(z.wants.Pod, z.wants.Rules) != podspec.OwnNothing
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
