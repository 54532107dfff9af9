package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology/podspec"
)

// Ready returns the room as if disconnected plugins were connected, with their last devices and
// without preferences; the pod without resources that no plugin has registered; and the names of
// these.
func (r Room) Ready(pod *v1.Pod) (ready Room, rest *v1.Pod, unknown []string) {
	r.Inventory, unknown = WithResources(r.Inventory, pod, func(r *devicemanager.Resource) bool {
		r.Connected, r.Options.Preferred = true, false
		return true
	})
	unknown = r.OfPlugins(unknown)
	return r, Without(pod, unknown), unknown
}

// WithResources returns an inventory of the pod's resources, each changed. It leaves out, and
// lists, those that the given one does not have or for which change returns false.
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

// Without returns the pod without requests for these resources.
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
	for c := range podspec.Containers(pod) {
		without(c.Resources.Limits)
		without(c.Resources.Requests)
	}
	return pod
}
