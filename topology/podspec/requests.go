package podspec

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Requests returns what a pod asks of the node, including the pod itself under "pods" and what its
// resource claims bring. Extended resources that a resource claim stands for are the claim's.
func Requests(pod *v1.Pod) v1.ResourceList {
	out := resourcehelper.PodRequests(pod, Sum())
	out[v1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, m := range s.RequestMappings {
			delete(out, v1.ResourceName(m.ResourceName))
		}
	}
	return out
}

// IsExtended reports whether the name is that of an extended resource, which a device plugin could
// serve: a qualified name with a domain that is not Kubernetes' own, short enough to be a quota
// item ("requests.<name>"). As in the kubelet, any domain that ends in kubernetes.io is Kubernetes'
// own, even mykubernetes.io.
func IsExtended[S ~string](name S) bool {
	const quota = "requests."
	text := string(name)
	return strings.Contains(text, "/") && !strings.Contains(text, "kubernetes.io/") &&
		!strings.HasPrefix(text, quota) && len(validation.IsQualifiedName(quota+text)) == 0
}

// DeviceRequest is a container's request for devices of one resource.
type DeviceRequest struct {
	Resource string
	Count    int
}

// DeviceRequests lists the extended resources of a container's limits, by name, but for those that a
// resource claim stands for.
func DeviceRequests(pod *v1.Pod, c *v1.Container) []DeviceRequest {
	var out []DeviceRequest
	byClaim := ByClaim(pod, c.Name)
	for name, quantity := range c.Resources.Limits {
		if n := quantity.Value(); n > 0 && IsExtended(name) && !byClaim.Has(string(name)) {
			out = append(out, DeviceRequest{Resource: string(name), Count: int(n)})
		}
	}
	slices.SortFunc(out, func(a, b DeviceRequest) int {
		return strings.Compare(a.Resource, b.Resource)
	})
	return out
}

// DeviceResources lists the extended resources that any container of the pod asks for, each once,
// in the order of the containers.
func DeviceResources(pod *v1.Pod) (names []string) {
	known := sets.New[string]()
	for c := range Containers(pod) {
		for _, d := range DeviceRequests(pod, c) {
			if !known.Has(d.Resource) {
				known.Insert(d.Resource)
				names = append(names, d.Resource)
			}
		}
	}
	return names
}

// AllDevices returns, by resource, the most devices that the pod has at once.
func AllDevices(pod *v1.Pod) map[string]int {
	return Peaks(pod, func(c *v1.Container) map[string]int {
		out := map[string]int{}
		for _, d := range DeviceRequests(pod, c) {
			out[d.Resource] = d.Count
		}
		return out
	})
}
