package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology/podspec"
)

// Reasons of events about changed device health. The kubelet has none.
const (
	reasonDeviceUnhealthy = "DeviceUnhealthy"
	reasonDeviceHealthy   = "DeviceHealthy"
	reasonDeviceUnknown   = "DeviceHealthUnknown"
)

// devices follows the health of the devices that containers hold: each change makes an event and
// refreshes the pod's status. The work grows with the held devices, not with all devices.
type devices struct {
	cfg Config
	// recorded is the health last reported; "" for a device that was not known yet.
	recorded map[failure.Device]v1.ResourceHealthStatus
}

// Sources tell the health of devices.
type Sources struct {
	// Inventory has those of device plugins, Drivers those of resource claims; nil: unknown.
	Inventory devicemanager.Inventory
	Drivers   *Drivers
}

// changeKey groups changes of one container's devices of a resource to the same health.
type changeKey struct {
	pod                         types.UID
	container, resource, driver string
	health                      v1.ResourceHealthStatus
}

// healthChange is such a group of changes.
type healthChange struct {
	changeKey
	ids  []string // in natural order
	why  string   // the reason in words, if the devices are not healthy and it is known
	rule failure.Rule
}

// round compares the present health with what was reported.
func (h *devices) round(log klog.Logger) {
	from := Sources{h.cfg.Inventory(), h.cfg.Drivers}
	now := healthOf(h.held(), from)
	for d, health := range now { // wait for the reason, which is about to arrive
		if health == v1.ResourceHealthStatusUnhealthy && from.awaitsReason(d) {
			now[d] = h.recorded[d]
		}
	}
	changed := map[types.UID]bool{}
	for d, health := range now {
		if was, known := h.recorded[d]; !known || was != orNever(was, health) {
			changed[d.Pod] = true
		}
	}
	for _, c := range healthChanges(h.recorded, now, from, h.cfg.Rules) {
		if pod, ok := h.cfg.Pod(c.pod); ok {
			kind, reason, message := c.event()
			log.Info("The health of devices in use changed", "pod", klog.KObj(pod),
				"health", c.health, "explanation", message)
			h.cfg.Tell(pod, kind, reason, message)
		}
	}
	for d, health := range now {
		now[d] = orNever(h.recorded[d], health)
	}
	h.recorded = now
	for _, uid := range slices.Sorted(maps.Keys(changed)) {
		h.cfg.Refresh(uid)
	}
}

// orNever returns a health as it is recorded: "" until it was known once.
func orNever(was, health v1.ResourceHealthStatus) v1.ResourceHealthStatus {
	if was == "" && health == v1.ResourceHealthStatusUnknown {
		return ""
	}
	return health
}

// held returns what containers that have not ended hold, of pods that a source has delivered; for
// others there can be no events yet.
func (h *devices) held() (out []holding) {
	for _, one := range h.cfg.holding() {
		last := h.cfg.Status(one.UID)
		containers := podspec.ByContainer(&last)
		one.Containers = maps.Clone(one.Containers)
		maps.DeleteFunc(one.Containers, func(name string, _ allocation.Container) bool {
			c := containers[name]
			return c != nil && c.State.Terminated != nil
		})
		out = append(out, one)
	}
	return out
}

func healthOf(held []holding, from Sources) (out map[failure.Device]v1.ResourceHealthStatus) {
	out = map[failure.Device]v1.ResourceHealthStatus{}
	for _, one := range held {
		one.each(from, func(d failure.Held) { out[d.Device] = d.Health })
	}
	return out
}

// healthChanges returns the changes worth an event, in order. A device that is healthy when first seen
// makes no event, because only healthy devices are given out; nor does one whose health is unknown.
func healthChanges(recorded, now map[failure.Device]v1.ResourceHealthStatus, from Sources,
	rules failure.Rules) []healthChange {
	changed := map[changeKey][]failure.Device{}
	for d, health := range now {
		was := recorded[d]
		if was == health || was == "" && health != v1.ResourceHealthStatusUnhealthy {
			continue
		}
		key := changeKey{d.Pod, d.Container, d.Resource, d.Driver, health}
		changed[key] = append(changed[key], d)
	}
	var out []healthChange
	for key, devices := range changed {
		c := changeOf(key, devices, from)
		c.rule = rules.Of(devices[0])
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b healthChange) int {
		return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.container, b.container),
			cmp.Compare(a.resource, b.resource), cmp.Compare(a.driver, b.driver),
			cmp.Compare(a.health, b.health))
	})
	return out
}

// changeOf returns the change of devices that key groups.
func changeOf(key changeKey, devices []failure.Device, from Sources) healthChange {
	slices.SortFunc(devices, func(a, b failure.Device) int {
		return devicemanager.CompareIDs(a.ID, b.ID)
	})
	c := healthChange{changeKey: key}
	for _, d := range devices {
		c.ids = append(c.ids, d.ID)
	}
	if c.driver != "" {
		c.why = c.saidBy(from.Drivers, devices)
	} else {
		c.why = c.because(from.Inventory.Resources[c.resource])
	}
	return c
}

// Amiss describes the unhealthy devices of a pod's containers that have not ended, with what is known of
// failures.
func Amiss(pod *v1.Pod, has allocation.Pod, from Sources, known map[failure.Device]failure.Outlook) (
	out []string) {
	now := healthOf([]holding{{pod, has}}, from)
	well, says := map[failure.Device]v1.ResourceHealthStatus{}, map[changeKey]string{}
	for d, health := range now {
		well[d] = v1.ResourceHealthStatusHealthy
		if o, is := known[d]; is && health == v1.ResourceHealthStatusUnhealthy {
			says[changeKey{d.Pod, d.Container, d.Resource, d.Driver, health}] = o.String(time.Now())
		}
	}
	containers := podspec.ByContainer(&pod.Status)
	for _, c := range healthChanges(well, now, from, failure.Rules{}) {
		if is := containers[c.container]; is != nil && is.State.Terminated != nil {
			continue
		}
		_, _, message := c.event()
		if more := says[c.changeKey]; more != "" {
			message += "; " + more
		}
		out = append(out, message)
	}
	return out
}

// event returns the event for the change.
func (c healthChange) event() (kind, reason, message string) {
	devices := fmt.Sprintf("Container %s: device %s of %s", c.container, devicemanager.Few(c.ids),
		c.resource)
	switch c.health {
	case v1.ResourceHealthStatusHealthy:
		return v1.EventTypeNormal, reasonDeviceHealthy, devices + ": healthy again"
	case v1.ResourceHealthStatusUnhealthy:
		next := "the container keeps running on it, delete the pod to have another one chosen"
		if a := c.rule.Action; a == failure.RestartContainer || a == failure.FailPod {
			next = fmt.Sprintf("%s has %s for it if it stays so", failure.Setting, a)
		}
		return v1.EventTypeWarning, reasonDeviceUnhealthy, devices + ": unhealthy, says " +
			c.teller() + c.why + "; " + next
	default:
		return v1.EventTypeWarning, reasonDeviceUnknown, devices + ": health unknown, " + c.why +
			"; the container keeps running on it"
	}
}

// teller names who tells the health.
func (c healthChange) teller() string {
	if c.driver != "" {
		return "driver " + c.driver
	}
	return "the device plugin"
}

// saidBy is because for devices of a resource claim.
func (c healthChange) saidBy(drivers *Drivers, devices []failure.Device) string {
	var reasons []string
	for _, d := range devices {
		if _, why := drivers.Of(claimDevice(d)); why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	switch {
	case len(reasons) > 0 && c.health == v1.ResourceHealthStatusUnhealthy:
		return oneline.Of(": " + strings.Join(reasons, "; "))
	case len(reasons) > 0:
		return oneline.Of("says " + c.teller() + ": " + strings.Join(reasons, "; "))
	case c.health == v1.ResourceHealthStatusUnknown:
		return c.teller() + " does not tell it"
	}
	return ""
}

// because says why the devices have their health: for unhealthy ones the plugin's reasons, each
// once.
func (c healthChange) because(r devicemanager.Resource) string {
	switch {
	case c.health == v1.ResourceHealthStatusUnhealthy:
		var reasons []string
		for _, id := range c.ids {
			if why := r.Reasons.ByID[id]; why != "" && !slices.Contains(reasons, why) {
				reasons = append(reasons, why)
			}
		}
		if len(reasons) == 0 {
			return ""
		}
		return oneline.Of(": " + strings.Join(reasons, "; "))
	case r.Connected:
		return "its device plugin does not list it any more"
	case r.Problem != "":
		return "its device plugin is disconnected: " + r.Problem
	}
	return "its device plugin is not connected"
}

// ResourceStatuses returns the health of a pod's devices, by container, for its status. cdi returns the
// first CDI id of a claim's device; "": it has none.
func ResourceStatuses(pod allocation.Pod, from Sources,
	cdi func(types.UID, claim.Device) (id string, prepared bool)) map[string][]v1.ResourceStatus {
	out, inventory := map[string][]v1.ResourceStatus{}, from.Inventory
	for name, c := range pod.Containers {
		for _, set := range c.Devices() {
			s := v1.ResourceStatus{Name: v1.ResourceName(set.Resource)}
			for _, id := range set.IDs {
				health := v1.ResourceHealth{
					ResourceID: v1.ResourceID(id), Health: inventory.Health(set.Resource, id),
				}
				if why := inventory.Reason(set.Resource, id); why != "" {
					health.Message = &why
				}
				s.Resources = append(s.Resources, health)
			}
			out[name] = append(out[name], s)
		}
		if from.Drivers != nil && len(c.Claims()) > 0 {
			out[name] = append(out[name], from.Drivers.statuses(c.Claims(), cdi)...)
		}
	}
	return out
}
