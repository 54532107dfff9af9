package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology/podspec"
)

// Ready is the room as if the plugins that are away were connected, with the devices that they had
// and without preferences, and the pod without what no plugin has registered, which is unknown.
func (r Room) Ready(pod *v1.Pod) (ready Room, rest *v1.Pod, unknown []string) {
	r.Inventory, unknown = WithResources(r.Inventory, pod, func(r *devicemanager.Resource) bool {
		r.Connected, r.Options.Preferred = true, false
		return true
	})
	return r, Without(pod, unknown), unknown
}

// WithResources is an inventory of the pod's resources, changed; left out are those that are not in
// the given one, or for which change returned false.
func WithResources(inventory devicemanager.Inventory, pod *v1.Pod,
	change func(*devicemanager.Resource) bool) (out devicemanager.Inventory, left []string) {
	out = inventory
	out.Resources = map[string]devicemanager.Resource{}
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

// Without is the pod without a request for these resources.
func Without(pod *v1.Pod, resources []string) *v1.Pod {
	if len(resources) == 0 {
		return pod
	}
	gone := sets.New(resources...)
	without := func(list v1.ResourceList) {
		maps.DeleteFunc(list, func(name v1.ResourceName, _ resource.Quantity) bool {
			return gone.Has(string(name))
		})
	}
	pod = pod.DeepCopy()
	for c := range podspec.Containers(pod) { // they may name as many as there are containers
		without(c.Resources.Limits)
		without(c.Resources.Requests)
	}
	return pod
}
