package pod

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Spec is the newest spec of a pod. An admitted pod keeps the resources that it was admitted with,
// whatever its source asks for since.
type Spec struct {
	// Pod runs or is being ended. Of an orphan it has what the runtime's labels say.
	Pod *v1.Pod
	// Wanted is the pod as its source has it, if that asks for other resources than Pod; nil: it
	// does not.
	Wanted *v1.Pod
}

// Shown returns the pod as its source has it.
func (s Spec) Shown() *v1.Pod { return cmp.Or(s.Wanted, s.Pod) }

// with returns the spec that a source has now, with the resources that the pod was admitted with;
// nil: it was not. resized reports whether the source asks for other resources than before.
func (s Spec) with(pod *v1.Pod, admitted *podspec.Resources) (next Spec, resized bool) {
	if admitted == nil {
		return Spec{Pod: pod}, false
	}
	if next.Pod = admitted.In(pod); next.Pod == pod {
		return next, false
	}
	next.Wanted = pod
	was := s.Shown()
	return next, was == nil || podspec.ResourcesOf(was).In(pod) != pod
}

// keep returns the spec with the resources with which the pod was decided on. resized reports
// whether its source changed them meanwhile.
func (s Spec) keep(decided *v1.Pod) (next Spec, resized bool) {
	next.Pod = podspec.ResourcesOf(decided).In(s.Pod)
	if next.Pod == s.Pod {
		return s, false
	}
	next.Wanted = s.Shown()
	return next, true
}
