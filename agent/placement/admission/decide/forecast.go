package decide

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology/podspec"
)

// rooms are the pod's rooms now, beside every other pod, and later, once the terminating ones have
// given back what they hold.
type rooms struct{ now, later allocation.Room }

// predict lets a pod without a place wait if it has one once terminating pods are gone, or once
// plugins are back and devices healthy as well. Otherwise the pod stays rejected.
func (d *Decision) predict(in rooms, r *Request) {
	in.later.Inventory = Unasked(in.later.Inventory, r.Pod)
	later, laterErr := in.later.Plan(r.Pod, r.Advice)
	if laterErr == nil {
		d.Claim = later.Pod
		d.wait(ForResources,
			d.Message+"; pods that are terminating hold what is missing")
		return
	}
	claim, ok := in.forecast(r.Pod, r.Advice)
	if !ok {
		return
	}
	d.Claim = claim
	var unready *allocation.Unready
	if !errors.As(laterErr, &unready) && !errors.As(d.Case.Err, &unready) {
		d.wait(ForDevices,
			d.Message+"; devices that are unhealthy now would do")
		return
	}
	cause := ForPlugin
	if unready.Claim.Reason != "" {
		cause = causeOf(unready.Claim)
	}
	d.wait(cause, unready.Error())
	if !r.Own.IsEmpty() {
		// From before a reboot: it keeps what it had, for its plugin to confirm.
		d.Claim = r.Own
	}
}

// Unasked returns an inventory to choose a claim from, whose plugins are not asked for preferences.
func Unasked(i devicemanager.Inventory, pod *v1.Pod) devicemanager.Inventory {
	i, _ = allocation.WithResources(i, pod, func(r *devicemanager.Resource) bool {
		r.Options.Preferred = false
		return true
	})
	return i
}

// forecast plans as if terminating pods were gone, all devices healthy, all plugins back and resource
// claims ready: first with the devices that plugins had, then without counting on those. The claim
// leaves out devices that cannot be foreseen.
func (in rooms) forecast(pod *v1.Pod, advice allocation.Advice) (later allocation.Pod, ok bool) {
	away := false
	in.later.Claims.Lack = claim.Lack{}
	for _, same := range []bool{true, false} {
		room := in.later
		inventory, unforeseen := allocation.WithResources(in.later.Inventory, pod,
			func(r *devicemanager.Resource) bool {
				away = away || !r.Connected
				if !r.Connected && (!same || len(r.Devices) == 0) {
					return false
				}
				r.Connected, r.Devices = true, allHealthy(r.Devices)
				return true
			})
		room.Inventory = inventory
		unforeseen = room.OfPlugins(unforeseen)
		if plan, err := room.Plan(allocation.Without(pod, unforeseen), advice); err == nil {
			return plan.Pod, true
		}
		if !away {
			break
		}
	}
	return allocation.Pod{}, false
}

func allHealthy(devices []*devicemanager.Device) []*devicemanager.Device {
	unhealthy := func(d *devicemanager.Device) bool { return !d.Healthy }
	if !slices.ContainsFunc(devices, unhealthy) {
		return devices
	}
	devices = slices.Clone(devices)
	for i, d := range devices {
		if !d.Healthy {
			devices[i] = &devicemanager.Device{
				ID: d.ID, Healthy: true, Cordoned: d.Cordoned, Nodes: d.Nodes,
			}
		}
	}
	return devices
}

// rejection returns the kubelet's words. The kubelet knows no disconnected plugins: if the plugin was
// there, its devices are unhealthy; if pods hold devices of the resource, it is unregistered; any other
// resource the node does not have.
func rejection(room allocation.Room, pod *v1.Pod, err error) *allocation.Rejection {
	if r, ok := errors.AsType[*allocation.Rejection](err); ok {
		return r
	}
	unready, ok := errors.AsType[*allocation.Unready](err)
	if !ok || unready.Claim.Reason != "" {
		return &allocation.Rejection{Reason: allocation.ReasonUnexpected, Message: err.Error()}
	}
	ready, rest, unknown := room.Ready(pod)
	plan, err := ready.Plan(rest, nil)
	if err == nil && plan.Ahead != nil {
		return plan.Ahead
	}
	if r, ok := errors.AsType[*allocation.Rejection](err); ok {
		if none, ok := errors.AsType[*devicemanager.UnhealthyError](err); ok && none.None &&
			!room.Inventory.Resources[none.Resource].Connected {
			// It is not known whether the plugin comes back with healthy devices.
			return allocation.Unexpected(&devicemanager.UnhealthyError{Resource: none.Resource})
		}
		return r
	}
	slices.Sort(unknown)
	for _, resource := range unknown {
		if held(room, resource) {
			return allocation.Unexpected(&devicemanager.UnregisteredError{Resource: resource})
		}
	}
	for _, resource := range unknown {
		name := v1.ResourceName(resource)
		requested := podspec.Requests(pod)[name]
		short := nodestatus.Shortage{Resource: name, Requested: requested.Value()}
		return allocation.OutOf(short)
	}
	// Its devices are away, and were its own before.
	return allocation.Unexpected(&devicemanager.UnhealthyError{Resource: unready.Resource})
}

// held reports whether pods have devices of a resource, this one or others.
func held(room allocation.Room, resource string) bool {
	return room.Taken.Devices()[resource].Len() > 0 ||
		allocation.HoldingsOf(room.Own).Devices()[resource].Len() > 0
}
