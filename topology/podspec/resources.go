package podspec

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources holds the requests and limits of a pod that a resize may change.
type Resources struct {
	// Pod holds those of the pod as a whole; nil: there are none.
	Pod *v1.ResourceRequirements `json:"pod,omitempty"`
	// Containers holds those of init and regular containers by name.
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
	// Volumes holds the sizes of emptyDirs in memory that have a limit, by name.
	Volumes map[string]resource.Quantity `json:"volumes,omitempty"`
}

// ResourcesOf returns the pod's resources.
func ResourcesOf(pod *v1.Pod) Resources {
	r := Resources{Pod: pod.Spec.Resources, Containers: map[string]v1.ResourceRequirements{}}
	for c := range Containers(pod) {
		r.Containers[c.Name] = c.Resources
	}
	for i := range pod.Spec.Volumes {
		if limit := memoryLimit(&pod.Spec.Volumes[i]); limit != nil {
			if r.Volumes == nil {
				r.Volumes = map[string]resource.Quantity{}
			}
			r.Volumes[pod.Spec.Volumes[i].Name] = *limit
		}
	}
	return r
}

// memoryLimit returns the size limit of an emptyDir in memory; nil: the volume is none, or has no limit.
func memoryLimit(v *v1.Volume) *resource.Quantity {
	if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumMemory || v.EmptyDir.SizeLimit == nil ||
		v.EmptyDir.SizeLimit.IsZero() {
		return nil
	}
	return v.EmptyDir.SizeLimit
}

// Over returns the resources with those of has in place of their own.
func (r Resources) Over(has Resources) Resources {
	out := Resources{
		Pod: cmp.Or(has.Pod, r.Pod), Containers: maps.Clone(r.Containers), Volumes: maps.Clone(r.Volumes),
	}
	for name, own := range has.Volumes {
		if _, known := out.Volumes[name]; known {
			out.Volumes[name] = own
		}
	}
	for name, own := range has.Containers {
		if _, known := out.Containers[name]; known {
			out.Containers[name] = own
		}
	}
	return out
}

// In returns the pod with these resources: the pod itself if they are equal, else a copy.
// Containers and volumes that r lacks stay as they are.
func (r Resources) In(pod *v1.Pod) *v1.Pod {
	init, changed := r.in(pod.Spec.InitContainers)
	regular, also := r.in(pod.Spec.Containers)
	volumes, sized := r.inVolumes(pod.Spec.Volumes)
	if !changed && !also && !sized && sameAmounts(r.Pod, pod.Spec.Resources) {
		return pod
	}
	out := *pod
	out.Spec.InitContainers, out.Spec.Containers, out.Spec.Resources = init, regular, r.Pod
	out.Spec.Volumes = volumes
	return &out
}

func (r Resources) inVolumes(volumes []v1.Volume) (out []v1.Volume, changed bool) {
	out = volumes
	for i := range volumes {
		has, known := r.Volumes[volumes[i].Name]
		limit := memoryLimit(&volumes[i])
		if !known || limit == nil || has.Cmp(*limit) == 0 {
			continue
		}
		if !changed {
			out, changed = slices.Clone(volumes), true
		}
		source := *volumes[i].EmptyDir
		source.SizeLimit = &has
		out[i].EmptyDir = &source
	}
	return out, changed
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
