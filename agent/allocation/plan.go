package allocation

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// View is what a plan is made from: a consistent snapshot, never written to.
type View struct {
	Machine *topology.Machine
	// CPUs is the static CPU policy; nil: no container gets exclusive CPUs.
	CPUs *cpumanager.Static
	// Memory is the static memory policy; nil: no container gets memory of certain nodes.
	Memory *memory.Static
	topology.Rules
	Options   topology.Options
	Inventory devicemanager.Inventory
	// Taken is what other pods hold or have reserved.
	Taken Taken
	// Sharing: one of these other pods has containers that share CPUs.
	Sharing bool
	// Own is what this pod holds already; Keep says how much of it stays.
	Own  Pod
	Keep Keeping

	// chosen are the devices that were chosen for the pod, once Plan has read them.
	chosen podspec.Chosen
}

// AskKey names one question to a plugin: which devices does it prefer for this container?
type AskKey struct {
	Container, Resource string
	// Ahead: of a plan that looks ahead, in which other devices may be left for the container.
	Ahead bool
}

// Ask is a GetPreferredAllocation call that a plan wants made, for the container of the key.
type Ask struct {
	AskKey
	devicemanager.PreferredRequest
}

// Advice holds the answers so far. A key with an empty answer was asked in vain.
type Advice map[AskKey][]string

// Plan is an assignment for every container of a pod, not yet reserved.
type Plan struct {
	// Pod holds device sets without answers, but for those kept from View.Own.
	Pod Pod
	// Ask is set when a plugin's advice is wanted first: ask it, add the answer to the advice and
	// plan again. Pod is then what it would get without; no containers: it has no place without.
	Ask *Ask
	// Decisions says what was merged for each container, or for the pod.
	Decisions []Decision
	// Kept says of which containers not all stays that they had, and why.
	Kept []string
	// Ahead is why the containers have no place in the order of their starts, where this plan looks
	// ahead.
	Ahead *Rejection
	// InWay is the init container for which there is no place beside the rest; "": none is in the way.
	InWay string
}

// Decision is one merge of hints.
type Decision struct {
	// Container is the container's name, "" for the pod as a whole.
	Container string
	Offers    []topology.ResourceHints
	Merged    topology.Result
}

// Rejection says why a pod cannot be placed as things are: the kubelet's reason and message.
type Rejection struct {
	Reason, Message string
	// Err is the cause, when an allocator gave one.
	Err error
}

func (r *Rejection) Error() string { return r.Reason + ": " + r.Message }

func (r *Rejection) Unwrap() error { return r.Err }

// Unready says that a device plugin has to appear, or to come back, before the pod can be placed.
type Unready struct {
	Resource string
	// Known: the resource was registered before; Problem, if any, is why it is not connected.
	Known   bool
	Problem string
	// Arriving: its plugin has registered and has listed no devices yet.
	Arriving bool
	// Refused is why the last plugin that wanted to register was refused, if one was since.
	Refused string
}

func (u *Unready) Error() string {
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
	// ReasonChosen is our own: a device that was chosen for the pod is not to be had.
	ReasonChosen = "ChosenDeviceUnavailable"
)

// Plan places all containers of the pod, in the order in which they will run. The error is a
// *Rejection or an *Unready.
//
// Under KeepParts, if there is no place around the parts that are still valid, containers are kept
// whole or not at all (not in pod scope), and if that is no place either, all is placed anew.
func (v View) Plan(pod *v1.Pod, advice Advice) (Plan, error) {
	v.chosen, _ = podspec.ChosenDevices(pod, v.Choosers) // a handler has told of an error
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
			continue // what a container keeps would not bind the pod
		}
		if plan, err = next.planOnce(pod, advice); err == nil {
			plan.Kept = []string{next.words + ": around what is still valid there is no place: " +
				around.Message}
			break
		}
	}
	return plan, err
}

// planOnce places the containers in the order in which they start, and looks ahead if that leads
// nowhere.
func (v View) planOnce(pod *v1.Pod, advice Advice) (Plan, error) {
	d := newDraft(v, pod, advice)
	err := d.placeAll()
	refused, ok := errors.AsType[*Rejection](err)
	if ok && d.plan.Ask == nil {
		d, err = d.lookAhead(refused)
	}
	if err != nil && d.plan.Ask != nil {
		d.plan.Pod.Containers, err = nil, nil // with the advice there may be a place
	}
	return d.plan, err
}
