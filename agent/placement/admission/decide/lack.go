package decide

import (
	"errors"
	"fmt"
	"time"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Reasons of pods that cannot start for want of objects of the API server: of one that waits, and of
// one whose time is over.
const (
	ReasonWaitObjects = "WaitingForObjects"
	ReasonNoObjects   = "ObjectsMissing"
)

// Lack says in the kubelet's words why a pod could not start; the zero Lack: it could.
type Lack struct {
	// Unknown: the API server has not answered yet; the object may be there.
	Unknown bool
	Why     string
	// Reason is the reason of the kubelet's event, Container the container that it is about; "": the pod.
	Reason, Container string
	// Usual: nothing is wrong so far, so the kubelet has no event of it.
	Usual bool
	// Limit says that the node takes no more volumes of a driver, which is why the pod is rejected when
	// its time is over; "": it is for another reason.
	Limit string
}

// Missing reports whether it is known that the pod could not start.
func (l Lack) Missing() bool { return l != Lack{} && !l.Unknown }

// Without turns the decision on a pod that lacks an object into a wait without holding anything, or into
// a rejection when the pod's time is over. An object that may exist is no reason to reject.
func (d Decision) Without(l Lack, wait, waited time.Duration) Decision {
	const nothing = "; until then the pod is given no CPUs, memory or devices"
	d.Kind, d.Claim, d.Victims, d.Rejection = Hindered, allocation.Pod{}, nil, nil
	d.wait(ForObjects, l.Why+nothing)
	if l.Unknown {
		d.Message = l.Why + "; it is not known whether the pod could start" + nothing
		return d
	}
	d.Rejection = &allocation.Rejection{Reason: ReasonNoObjects,
		Message: fmt.Sprintf("%s; the pod has waited for that for %v", l.Why, wait)}
	if l.Limit != "" {
		d.Rejection = &allocation.Rejection{Reason: podspec.ReasonVolumeLimit, Message: l.Limit}
	}
	if waited >= wait {
		d.refuse(Reject, d.Rejection.Reason, d.Rejection.Message)
	}
	return d
}

// IsForClaims reports whether the decision waits for what keeps claims from being used.
func (d *Decision) IsForClaims() bool {
	unready, ok := errors.AsType[*allocation.Unready](d.Case.Err)
	return ok && unready.Claim.Reason != ""
}
