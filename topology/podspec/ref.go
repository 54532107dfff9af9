package podspec

import v1 "k8s.io/api/core/v1"

// Ref names a container of a pod.
type Ref struct {
	Pod       *v1.Pod
	Container string
}

// FieldPath returns the container's place in the pod in the form of events; "": there is none.
func (r Ref) FieldPath() string {
	if c, kind := Find(r.Pod, r.Container); c != nil {
		return "spec." + listOf(kind) + "{" + c.Name + "}"
	}
	return ""
}
