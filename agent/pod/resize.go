package pod

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// accept takes the spec of an event, but for resources of which the pod was admitted with others. It
// reports whether the spec asks for others than before.
func (s *step) accept(e Event) (resized bool) {
	admitted, was := e.Runtime.Admitted, s.Pod
	switch s.State {
	case None, Deciding, Rejected:
	default:
		own := podspec.ResourcesOf(s.Pod)
		admitted = &own
	}
	if s.Wanted != nil {
		was = s.Wanted
	}
	s.Pod, s.Wanted = e.Pod, nil
	if admitted == nil {
		return false
	}
	if s.Pod = admitted.In(e.Pod); s.Pod == e.Pod {
		return false
	}
	s.Wanted = e.Pod
	return was == nil || podspec.ResourcesOf(was).In(e.Pod) != e.Pod
}

// keep has the pod keep the resources with which it was decided on, which its source changed
// meanwhile. It reports whether it did.
func (s *step) keep(decided *v1.Pod) (resized bool) {
	is := s.Pod
	if s.Pod = podspec.ResourcesOf(decided).In(is); s.Pod == is {
		return false
	}
	s.Wanted = cmp.Or(s.Wanted, is)
	return true
}

func (s *step) infeasible(resized bool) {
	if resized {
		s.do(Effect{Kind: Infeasible})
	}
}
