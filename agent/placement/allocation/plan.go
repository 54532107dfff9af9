package allocation

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// View is the consistent snapshot that a plan is made from. It is never written to.
type View struct {
	Machine *topology.Machine
	// CPUs is the static CPU policy; nil: containers get no exclusive CPUs.
	CPUs *cpumanager.Static
	// Memory is the static memory policy; nil: containers get no memory on certain nodes.
	Memory *memory.Static
	topology.Rules
	Options   topology.Options
	Inventory devicemanager.Inventory
	// Advertised has the extended resources of the node's status, of device plugins and others; nil: the
	// status is not known, or there is none.
	Advertised v1.ResourceList
	// Claims are the pod's.
	Claims PodClaims
	// Holder names a pod that has some of these CPUs exclusively, "": unknown. Optional.
	Holder func(cpuset.CPUSet) string
	// ClaimHolder names another pod that uses a claim, "": none. Optional.
	ClaimHolder func(types.UID) string
	// CPUDriver is the driver of resource claims whose CPUs the agent chooses itself; "": none.
	CPUDriver string
	// Taken lists what other pods hold or have reserved.
	Taken Holdings
	// Sharing: a container of another pod runs in the shared pool.
	Sharing bool
	// Own lists what this pod already holds; Keep says how much of it stays.
	Own  Pod
	Keep Keeping
	// Before is the pod as it was before a resize, for KeepResized: what a container requests as before stays.
	Before *v1.Pod

	// Chosen are the devices that were chosen for the pod.
	Chosen podspec.Chosen
}

// AskKey identifies one question to a plugin: which devices does it prefer for this container?
type AskKey struct {
	Container, Resource string
	// Ahead: the plan looks ahead, so that other devices may be left for the container.
	Ahead bool
}

// Ask is a GetPreferredAllocation call that a plan needs.
type Ask struct {
	AskKey
	devicemanager.PreferredRequest
}

// Advice holds the answers so far. An empty answer means that the plugin had none.
type Advice map[AskKey][]string

// Plan is an assignment for every container of a pod. It is not reserved yet.
type Plan struct {
	// Pod's holdings have no answers, except for those kept from View.Own.
	Pod Pod
	// Ask is set when a plugin's advice is needed: ask it, add the answer to the advice and plan
	// again. Pod is then the assignment without advice; no containers: there is none.
	Ask *Ask
	// Decisions are the merges for each container, or for the pod.
	Decisions []Decision
	// Kept says which containers lose a part of what they had, and why.
	Kept []string
	// Ahead is set in a plan that looks ahead: why there is no place in the order of starts.
	Ahead *Rejection
	// InWay is the init container that has no place beside the others; "": none.
	InWay string
}

// Decision is the result of one merge of hints.
type Decision struct {
	// Container is the container's name, "" for the pod as a whole.
	Container string
	Offers    []topology.ResourceHints
	Merged    topology.Result
}

// Rejection says why a pod cannot be placed now, with the kubelet's reason and message.
type Rejection struct {
	Reason, Message string
	// Short is the resource that is only counted and of which the node has too little; "": it is for another
	// reason.
	Short v1.ResourceName
	// Err is the allocator's error, if any.
	Err error
}

// OutOf rejects a pod since the node has too little of a resource that is only counted.
func OutOf(s nodestatus.Shortage) *Rejection {
	return &Rejection{Reason: s.Reason(), Message: s.Message(), Short: s.Resource}
}

func (r *Rejection) Error() string { return r.Reason + ": " + r.Message }

func (r *Rejection) Unwrap() error { return r.Err }

// Unready says that a device plugin has to register or reconnect before the pod can be placed, or what
// keeps its resource claims from being used.
type Unready struct {
	// Claim says what the claims lack; the zero value: it is about a device plugin.
	Claim    claim.Lack
	Resource string
	// Known: the resource was registered before. Problem is why it is not connected, if known.
	Known   bool
	Problem string
	// Arriving: its plugin has registered and not listed its devices yet.
	Arriving bool
	// Refused is why the last registration was refused, if one was.
	Refused string
}

func (u *Unready) Error() string {
	if u.Claim.Reason != "" {
		return u.Claim.Why
	}
	text := fmt.Sprintf("no device plugin has registered %s", u.Resource)
	switch {
	case u.Arriving:
		text = fmt.Sprintf("the device plugin of %s is not ready", u.Resource)
	case u.Known:
		text = fmt.Sprintf("the device plugin of %s is disconnected", u.Resource)
	}
	if u.Problem != "" {
		text += ": " + u.Problem
	}
	if u.Refused != "" {
		text += "; the last one that wanted to register was refused: " + u.Refused
	}
	return text
}

// Reasons of rejections, as the kubelet names them.
const (
	ReasonUnexpected = "UnexpectedAdmissionError"
	ReasonTopology   = "TopologyAffinityError"
	// ReasonChosen is our own: a device that a user chose for the pod cannot be had.
	ReasonChosen = "ChosenDeviceUnavailable"
)

// Plan places all containers of the pod. The error is a *Rejection or an *Unready.
//
// With KeepParts, if there is no place around the parts that are still valid, Plan tries KeepWhole
// (not in pod scope), and then places everything anew.
func (v View) Plan(pod *v1.Pod, advice Advice) (Plan, error) {
	plan, err := v.planOnce(pod, advice)
	around, refused := errors.AsType[*Rejection](err)
	if v.Keep != KeepParts || v.Own.IsEmpty() || !refused {
		return plan, err
	}
	whole, anew := v, v
	whole.Keep, anew.Own = KeepWhole, Pod{BootID: v.Own.BootID}
	for _, next := range []struct {
		View
		words string
	}{
		{whole, "no container keeps only a part of what it had"},
		{anew, "nothing is kept of what the pod had"},
	} {
		if next.Keep == KeepWhole && v.Scope == topology.PodScope {
			continue // a container that keeps everything would not fix the pod's place
		}
		if plan, err = next.planOnce(pod, advice); err == nil {
			plan.Kept = []string{next.words + ": around what is still valid there is no place: " +
				around.Message}
			break
		}
	}
	return plan, err
}

// planOnce places the containers in the order of their starts, and looks ahead if there is no
// place, unless they run.
func (v View) planOnce(pod *v1.Pod, advice Advice) (Plan, error) {
	d := newDraft(v, pod, advice)
	err := d.placeAll()
	refused, ok := errors.AsType[*Rejection](err)
	if ok && d.plan.Ask == nil && v.Keep != KeepResized {
		d, err = d.lookAhead(refused)
	}
	if err != nil && d.plan.Ask != nil {
		d.plan.Pod.Containers, err = nil, nil // with the advice there may be a place
	}
	return d.plan, err
}
