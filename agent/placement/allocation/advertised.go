package allocation

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// IsForeign reports whether an extended resource is none of device plugins: none has ever had it, no
// pod has devices of it, and the node's status does not say that there are 0, which is what a kubelet
// leaves of a plugin's resource. As with the kubelet such a resource is counted if the node's status has
// it (Counts), and otherwise left aside: it is a scheduler extender's.
func (v View) IsForeign(name string) bool {
	if v.Advertised == nil || v.Inventory.Knows(name) ||
		v.Taken.Devices()[name].Len() > 0 || HoldingsOf(v.Own).Devices()[name].Len() > 0 {
		return false
	}
	amount, has := v.Advertised[v1.ResourceName(name)]
	return !has || !amount.IsZero()
}

// Counts reports whether a foreign resource is counted.
func (v View) Counts(name string) bool {
	_, has := v.Advertised[v1.ResourceName(name)]
	return has && v.IsForeign(name)
}

// deviceRequests lists what the container asks of device plugins.
func (v View) deviceRequests(pod *v1.Pod, c *v1.Container) (out []podspec.DeviceRequest) {
	for _, r := range podspec.DeviceRequests(pod, c) {
		if !v.IsForeign(r.Resource) {
			out = append(out, r)
		}
	}
	return out
}

// OfPlugins returns those of the resources that are device plugins'.
func (v View) OfPlugins(names []string) []string {
	return slices.DeleteFunc(names, v.IsForeign)
}
