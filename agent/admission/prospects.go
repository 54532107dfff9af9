package admission

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology/podspec"
)

// prospects are the rooms in which a pod may have a place: now, beside every other pod, and later,
// once the terminating ones have given back what they hold.
type prospects struct{ now, later allocation.Room }

// judgement is what becomes of a pod that has no place now.
type judgement struct {
	// final: there is nothing to wait for. Else the pod waits, in these words.
	final           bool
	reason, message string
	// claim is what the pod is going to get as things are. It may lack devices that no plugin has
	// named yet.
	claim allocation.Pod
	// rejection is said when it is final, or the pod may wait no longer: what the kubelet would
	// say.
	rejection *allocation.Rejection
}

// judge reads the error of a plan in the room now: may the pod have a place when terminating pods
// are gone, and if not so, when plugins are back and devices healthy too?
func (p prospects) judge(pod *v1.Pod, advice allocation.Advice, err error) judgement {
	j := judgement{rejection: p.rejection(pod, err)}
	p.later.Inventory, _ = withResources(p.later.Inventory, pod,
		func(r *deviceplugin.Resource) bool {
			r.Preferred = false // a claim is chosen without asking
			return true
		})
	later, laterErr := p.later.Plan(pod, advice)
	if laterErr == nil {
		j.claim, j.reason = later.Pod, ReasonWaitResources
		j.message = j.rejection.Message + "; pods that are terminating hold what is missing"
		return j
	}
	claim, ok := p.hoped(pod, advice)
	if !ok {
		j.final = true
		return j
	}
	j.claim, j.reason = claim, ReasonWaitDevices
	j.message = j.rejection.Message + "; devices that are unhealthy now would do"
	var unready *allocation.Unready
	if errors.As(laterErr, &unready) || errors.As(err, &unready) {
		j.reason, j.message = ReasonWaitPlugin, unready.Error()
		if !p.now.Own.IsEmpty() {
			// From before a reboot: it keeps what it had, for its plugin to confirm.
			j.claim = p.now.Own
		}
	}
	return j
}

// hoped is the place that the pod has when terminating pods are gone, all devices healthy and the
// plugins that are away back: with the devices that they had, or if those would not do, with such
// as will. Devices that cannot be foreseen are no part of it.
func (p prospects) hoped(pod *v1.Pod, advice allocation.Advice) (claim allocation.Pod, ok bool) {
	away := false
	for _, same := range []bool{true, false} {
		room := p.later
		inventory, unforeseen := withResources(p.later.Inventory, pod,
			func(r *deviceplugin.Resource) bool {
				away = away || !r.Connected
				if !r.Connected && (!same || len(r.Devices) == 0) {
					return false
				}
				r.Connected, r.Devices = true, allHealthy(r.Devices)
				return true
			})
		room.Inventory = inventory
		if plan, err := room.Plan(without(pod, unforeseen), advice); err == nil {
			return plan.Pod, true
		}
		if !away {
			break
		}
	}
	return allocation.Pod{}, false
}

func allHealthy(devices []*deviceplugin.Device) []*deviceplugin.Device {
	unhealthy := func(d *deviceplugin.Device) bool { return !d.Healthy }
	if !slices.ContainsFunc(devices, unhealthy) {
		return devices
	}
	devices = slices.Clone(devices)
	for i, d := range devices {
		if !d.Healthy {
			devices[i] = &deviceplugin.Device{ID: d.ID, Healthy: true, Nodes: d.Nodes}
		}
	}
	return devices
}

// rejection is what the kubelet would say now. It has no word for a plugin that is away: to it a
// plugin that was there has no healthy devices, a resource that it does not know and of which pods
// have devices is unregistered, and any other one is none of its device manager's, only something
// that the node has none of.
func (p prospects) rejection(pod *v1.Pod, err error) *allocation.Rejection {
	var rejection *allocation.Rejection
	if errors.As(err, &rejection) {
		return rejection
	}
	var unready *allocation.Unready
	if !errors.As(err, &unready) {
		return &allocation.Rejection{Reason: allocation.ReasonUnexpected, Message: err.Error()}
	}
	room := p.now
	inventory, unknown := withResources(room.Inventory, pod, func(r *deviceplugin.Resource) bool {
		r.Connected, r.Preferred = true, false
		return true
	})
	room.Inventory = inventory
	if _, err := room.Plan(without(pod, unknown), nil); errors.As(err, &rejection) {
		return rejection
	}
	slices.Sort(unknown)
	for _, resource := range unknown {
		if p.held(resource) {
			return unexpected(&deviceplugin.UnregisteredError{Resource: resource})
		}
	}
	for _, resource := range unknown {
		name := v1.ResourceName(resource)
		requested := podspec.Requests(pod)[name]
		short := node.Shortage{Resource: name, Requested: requested.Value()}
		return &allocation.Rejection{Reason: short.Reason(), Message: short.Message()}
	}
	// Its devices are away, and were its own before.
	return unexpected(&deviceplugin.UnhealthyError{Resource: unready.Resource})
}

// held reports whether pods have devices of a resource, this one or others.
func (p prospects) held(resource string) bool {
	return p.now.Taken.Devices[resource].Len() > 0 ||
		allocation.TakenBy(p.now.Own).Devices[resource].Len() > 0
}

// unexpected is the rejection for an error that a manager of the kubelet would have.
func unexpected(err error) *allocation.Rejection {
	return &allocation.Rejection{
		Reason:  allocation.ReasonUnexpected,
		Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), Err: err,
	}
}

// withResources is an inventory of the pod's resources, changed; left out are those that are not in
// the given one, or for which change returned false.
func withResources(inventory deviceplugin.Inventory, pod *v1.Pod,
	change func(*deviceplugin.Resource) bool) (out deviceplugin.Inventory, left []string) {
	out = inventory
	out.Resources = map[string]deviceplugin.Resource{}
	for _, name := range podspec.DeviceResources(pod) {
		r, known := inventory.Resources[name]
		if known && change(&r) {
			out.Resources[name] = r
			continue
		}
		left = append(left, name)
	}
	return out, left
}

// without is the pod without a request for these resources.
func without(pod *v1.Pod, resources []string) *v1.Pod {
	if len(resources) == 0 {
		return pod
	}
	pod = pod.DeepCopy()
	for c := range podspec.Containers(pod) {
		for _, name := range resources {
			delete(c.Resources.Limits, v1.ResourceName(name))
			delete(c.Resources.Requests, v1.ResourceName(name))
		}
	}
	return pod
}
