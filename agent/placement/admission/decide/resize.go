package decide

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
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
func (s *Snapshot) Resize(in types.UID, has, wants *Demand) Resizing {
	if s.ResizeRule != nil {
		if no := s.ResizeRule(has.Pod, wants.Pod); no != nil {
			return *no
		}
	}
	grows := Growth(has.Requests, wants.Requests)
	if len(grows) == 0 {
		return Resizing{}
	}
	before := allocation.AddRequests(s.Ahead, s.Growth)
	o := s.Ledger.Beside(in, nil)
	terminating := o.Requests[allocation.Terminating]
	room := s.room(o, allocation.Pod{})
	short := func(others v1.ResourceList) *nodestatus.Shortage {
		room.Others = []v1.ResourceList{o.Requests[allocation.Held], others}
		for _, one := range room.Shortages(wants.Pod) {
			if _, is := grows[one.Resource]; is {
				return &one
			}
		}
		return nil
	}
	lacks := short(Greater(terminating, before))
	if lacks == nil {
		return Resizing{}
	}
	d := Deferred(lacks.Message())
	d.Lack, d.Expected = lacks.Reason(), short(before) == nil
	return d
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
