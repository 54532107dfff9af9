package podspec

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Resources holds the requests and limits of a pod that a resize may change.
type Resources struct {
	// Pod holds those of the pod as a whole; nil: there are none.
	Pod *v1.ResourceRequirements `json:"pod,omitempty"`
	// Containers holds those of init and regular containers by name.
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
}

// ResourcesOf returns the pod's resources.
func ResourcesOf(pod *v1.Pod) Resources {
	r := Resources{Pod: pod.Spec.Resources, Containers: map[string]v1.ResourceRequirements{}}
	for c := range Containers(pod) {
		r.Containers[c.Name] = c.Resources
	}
	return r
}

// Over returns the resources with those of has in place of their own.
func (r Resources) Over(has Resources) Resources {
	out := Resources{Pod: cmp.Or(has.Pod, r.Pod), Containers: maps.Clone(r.Containers)}
	for name, own := range has.Containers {
		if _, known := out.Containers[name]; known {
			out.Containers[name] = own
		}
	}
	return out
}

// In returns the pod with these resources: the pod itself if they are equal, else a copy.
// Containers that r lacks stay as they are.
func (r Resources) In(pod *v1.Pod) *v1.Pod {
	init, changed := r.in(pod.Spec.InitContainers)
	regular, also := r.in(pod.Spec.Containers)
	if !changed && !also && sameAmounts(r.Pod, pod.Spec.Resources) {
		return pod
	}
	out := *pod
	out.Spec.InitContainers, out.Spec.Containers, out.Spec.Resources = init, regular, r.Pod
	return &out
}

func (r Resources) in(containers []v1.Container) (out []v1.Container, changed bool) {
	out = containers
	for i := range containers {
		has, known := r.Containers[containers[i].Name]
		if !known || sameAmounts(&has, &containers[i].Resources) {
			continue
		}
		if !changed {
			out, changed = slices.Clone(containers), true
		}
		out[i].Resources = has
	}
	return out, changed
}

// sameAmounts compares requests and limits.
func sameAmounts(a, b *v1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equality.Semantic.DeepEqual(a.Requests, b.Requests) &&
		equality.Semantic.DeepEqual(a.Limits, b.Limits)
}
