package pod

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Spec is the newest spec of a pod. An admitted pod has the resources that it was allocated, whatever its
// source asks for since.
type Spec struct {
	// Pod runs or is being ended. Of an orphan it has what the runtime's labels say.
	Pod *v1.Pod
	// Wanted is the pod as its source has it, if that asks for other resources than Pod; nil: it
	// does not.
	Wanted *v1.Pod
	Resize Resize
}

// Resize says how far a pod is on the way to other resources.
type Resize struct {
	// Pending says why the pod does not get the resources of Wanted (v1.PodReasonDeferred,
	// v1.PodReasonInfeasible) and when it asked; zero: it has what it wants, or admission has not said.
	Pending Why
	// InProgress: the pod was allocated other resources, and its containers and cgroups do not have them
	// all yet. Error says what keeps them; "": nothing.
	InProgress bool
	Error      string
	// Generation is the metadata.generation of the spec that is being applied.
	Generation int64
}

// Shown returns the pod as its source has it.
func (s Spec) Shown() *v1.Pod { return cmp.Or(s.Wanted, s.Pod) }

// with returns the spec that a source has now, with the resources that the pod was allocated; nil: it has
// none. resized reports whether the source asks for other resources than before.
func (s Spec) with(pod *v1.Pod, allocated *podspec.Resources) (next Spec, resized bool) {
	if allocated == nil {
		return Spec{Pod: pod}, false
	}
	if was := s.Shown(); was != nil {
		resized = podspec.ResourcesOf(was).In(pod) != pod
	}
	next = s.having(*allocated, pod)
	if resized {
		next.Resize.Pending = Why{}
	}
	return next, resized
}

// having returns the spec with these resources for a pod that its source has like this.
func (s Spec) having(allocated podspec.Resources, shown *v1.Pod) Spec {
	next := Spec{Pod: allocated.In(shown), Resize: s.Resize}
	if next.Pod != shown {
		next.Wanted = shown
	} else {
		next.Resize.Pending = Why{}
	}
	return next
}
