package health

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/failure"
)

// holding is a pod with what it holds.
type holding struct {
	spec *v1.Pod
	allocation.Pod
}

// holding returns the pods that a source has delivered, with what they hold.
func (c Config) holding() (out []holding) {
	for uid, held := range c.State().Pods {
		if pod, known := c.Pod(uid); known {
			held.UID = uid
			out = append(out, holding{pod, held})
		}
	}
	return out
}

// each calls do for each device of the pod's containers, with its health. A device that a container has
// by several requests of a claim may come several times.
func (h holding) each(from Sources, do func(failure.Held)) {
	for name, c := range h.Containers {
		for _, set := range c.Devices() {
			for _, id := range set.IDs {
				do(failure.Held{Health: from.Inventory.Health(set.Resource, id), Device: failure.Device{
					Pod: h.UID, Container: name, Resource: set.Resource, ID: id}})
			}
		}
		for _, one := range c.Claims() {
			if from.Drivers == nil {
				continue
			}
			resource := h.resource(name, one)
			for _, d := range one.Devices {
				health, _ := from.Drivers.Of(d)
				do(failure.Held{Health: health, Exempt: d.Admin, Device: failure.Device{Pod: h.UID,
					Container: name, Resource: resource, ID: d.Name, Driver: d.Driver, Pool: d.Pool}})
			}
		}
	}
}

// resource names what a container has devices of a claim for: the claim, or the extended resource that
// the claim stands for.
func (h holding) resource(container string, one allocation.Claim) string {
	if one.Name != "" {
		return "claim " + one.Name
	}
	if name := claim.ExtendedResource(h.spec, container, one.Request); name != "" {
		return name
	}
	return one.String()
}

// claimDevice returns the device of a resource claim.
func claimDevice(d failure.Device) claim.Device {
	return claim.Device{Driver: d.Driver, Pool: d.Pool, Name: d.ID}
}

// awaitsReason reports whether a plugin is about to say why the device is unhealthy.
func (s Sources) awaitsReason(d failure.Device) bool {
	return d.Driver == "" && s.Inventory.Resources[d.Resource].Reasons.Awaited
}
