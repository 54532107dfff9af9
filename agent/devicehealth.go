package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin"
)

// Reasons of events on pods whose devices change their health. The kubelet has none.
const (
	reasonDeviceUnhealthy = "DeviceUnhealthy"
	reasonDeviceHealthy   = "DeviceHealthy"
	reasonDeviceUnknown   = "DeviceHealthUnknown"
	reasonAdviceIgnored   = "DevicePreferenceIgnored"
	reasonListRefused     = "DevicePluginListRefused" // on the node
)

// deviceHealth follows the health of the devices that containers hold: it tells of each change and
// has the pod's status made anew. Its work grows with the devices that are held, not with those
// that there are.
type deviceHealth struct {
	inventory func() deviceplugin.Inventory
	state     func() allocation.State
	// refresh makes a pod's status anew.
	refresh func(types.UID)
	// tell takes a change.
	tell func(healthChange)
	wake chan struct{} // capacity 1

	// told is owned by run; "" is the health of a device of which nothing was known yet.
	told map[heldDevice]v1.ResourceHealthStatus
}

// followHealth makes the part that follows devices' health, if the node tells of it at all.
func (a *Agent) followHealth() *deviceHealth {
	if !a.cfg.Gates.Enabled("ResourceHealthStatus") {
		return &deviceHealth{}
	}
	a.pods.health = func(uid types.UID) map[string][]v1.ResourceStatus {
		return resourceStatuses(a.store.State().Pods[uid], a.plugins.Inventory())
	}
	return &deviceHealth{
		inventory: a.plugins.Inventory, state: a.store.State, refresh: a.workers.Wake,
		wake: make(chan struct{}, 1),
		tell: func(c healthChange) {
			if r, ok := a.pods.get(c.pod); ok {
				kind, reason, message := c.event()
				a.event(r.pod, kind, reason, message)
			}
		},
	}
}

// unadvised tells of a pod that is placed without its plugin's preference, or not wholly by it.
func (a *Agent) unadvised(pod *v1.Pod, key allocation.AskKey, err error) {
	a.event(pod, v1.EventTypeWarning, reasonAdviceIgnored, fmt.Sprintf(
		"Container %s: the agent chose devices of %s without the device plugin's preference: %v",
		key.Container, key.Resource, err))
}

// listRefused tells of a plugin whose devices do not count as it lists them.
func (a *Agent) listRefused(r deviceplugin.RefusedList) {
	a.nodeEvent(v1.EventTypeWarning, reasonListRefused, "Device "+r.String())
}

// heldDevice is one device that a container holds.
type heldDevice struct {
	pod          types.UID
	container    string
	resource, id string
}

// healthChange is a change of some devices of one container to the same health.
type healthChange struct {
	pod       types.UID
	container string
	resource  string
	health    v1.ResourceHealthStatus
	ids       []string // in natural order
}

func (h *deviceHealth) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
			h.round()
		}
	}
}

// round compares what is with what was told.
func (h *deviceHealth) round() {
	now := healthOf(h.state(), h.inventory())
	changed := map[types.UID]bool{}
	for d, health := range now {
		if was, known := h.told[d]; !known || was != orNever(was, health) {
			changed[d.pod] = true
		}
	}
	for _, c := range healthChanges(h.told, now) {
		h.tell(c)
	}
	for d, health := range now {
		now[d] = orNever(h.told[d], health)
	}
	h.told = now
	for _, uid := range slices.Sorted(maps.Keys(changed)) {
		h.refresh(uid)
	}
}

// orNever is a health as it is remembered: unknown is "" until something was known.
func orNever(was, health v1.ResourceHealthStatus) v1.ResourceHealthStatus {
	if was == "" && health == v1.ResourceHealthStatusUnknown {
		return ""
	}
	return health
}

func healthOf(state allocation.State, inventory deviceplugin.Inventory) (
	out map[heldDevice]v1.ResourceHealthStatus) {
	out = map[heldDevice]v1.ResourceHealthStatus{}
	for uid, pod := range state.Pods {
		for name, c := range pod.Containers {
			for _, set := range c.Devices {
				for _, id := range set.IDs {
					device := heldDevice{uid, name, set.Resource, id}
					out[device] = inventory.Health(set.Resource, id)
				}
			}
		}
	}
	return out
}

// healthChanges are the changes worth telling, in order. What is healthy when it is first seen, or
// first known after that, is no news: that is what it was given out for. Nor is it news that
// nothing is known of a device yet.
func healthChanges(told, now map[heldDevice]v1.ResourceHealthStatus) []healthChange {
	byKind := map[heldDevice]map[v1.ResourceHealthStatus]*healthChange{}
	for d, health := range now {
		was := told[d]
		if was == health || was == "" && health != v1.ResourceHealthStatusUnhealthy {
			continue
		}
		key := heldDevice{pod: d.pod, container: d.container, resource: d.resource}
		if byKind[key] == nil {
			byKind[key] = map[v1.ResourceHealthStatus]*healthChange{}
		}
		c := byKind[key][health]
		if c == nil {
			c = &healthChange{
				pod: d.pod, container: d.container, resource: d.resource, health: health,
			}
			byKind[key][health] = c
		}
		c.ids = append(c.ids, d.id)
	}
	var out []healthChange
	for _, kinds := range byKind {
		for _, c := range kinds {
			slices.SortFunc(c.ids, deviceplugin.CompareIDs)
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b healthChange) int {
		return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.container, b.container),
			cmp.Compare(a.resource, b.resource), cmp.Compare(a.health, b.health))
	})
	return out
}

// event is the change for people.
func (c healthChange) event() (kind, reason, message string) {
	devices := "device " + strings.Join(c.ids[:min(len(c.ids), 8)], ", ")
	if more := len(c.ids) - 8; more > 0 {
		devices += fmt.Sprintf(" and %d more", more)
	}
	devices = fmt.Sprintf("Container %s: %s of %s", c.container, devices, c.resource)
	switch c.health {
	case v1.ResourceHealthStatusHealthy:
		return v1.EventTypeNormal, reasonDeviceHealthy, devices + ": healthy again"
	case v1.ResourceHealthStatusUnhealthy:
		return v1.EventTypeWarning, reasonDeviceUnhealthy, devices + ": unhealthy, says the " +
			"device plugin; the container keeps running on it, delete the pod to have another " +
			"one chosen"
	default:
		return v1.EventTypeWarning, reasonDeviceUnknown, devices + ": health unknown, its device " +
			"plugin is not connected or does not list it any more; the container keeps running " +
			"on it"
	}
}

// resourceStatuses is the health of what a pod holds, by container, for its status.
func resourceStatuses(pod allocation.Pod,
	inventory deviceplugin.Inventory) map[string][]v1.ResourceStatus {
	out := map[string][]v1.ResourceStatus{}
	for name, c := range pod.Containers {
		for _, set := range c.Devices {
			s := v1.ResourceStatus{Name: v1.ResourceName(set.Resource)}
			for _, id := range set.IDs {
				s.Resources = append(s.Resources, v1.ResourceHealth{
					ResourceID: v1.ResourceID(id), Health: inventory.Health(set.Resource, id),
				})
			}
			out[name] = append(out[name], s)
		}
	}
	return out
}
