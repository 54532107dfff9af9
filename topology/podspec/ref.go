package podspec

import v1 "k8s.io/api/core/v1"

// Ref names a container of a pod.
type Ref struct {
	Pod       *v1.Pod
	Container string
}

// FieldPath is where the container stands in the pod, in the words of events; "": nowhere.
func (r Ref) FieldPath() string {
	for i := range r.Pod.Spec.EphemeralContainers {
		if r.Pod.Spec.EphemeralContainers[i].Name == r.Container {
			return "spec.ephemeralContainers{" + r.Container + "}"
		}
	}
	switch c, kind := Find(r.Pod, r.Container); {
	case c == nil:
		return ""
	case kind == Regular:
		return "spec.containers{" + r.Container + "}"
	default:
		return "spec.initContainers{" + r.Container + "}"
	}
}
