package admission

import (
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// planned returns the pod as it is now, with the resources that the decision was made for.
func (r *record) planned(now *v1.Pod) *v1.Pod { return podspec.ResourcesOf(r.Pod).In(now) }

// resubmitted takes another spec. An assignment, also one under way, keeps the resources that it was
// planned for. A pod without a place looks for another one if other devices are chosen for it now.
func (s *step) resubmitted(e resubmitted) {
	same := reflect.DeepEqual(s.Chosen, e.demand.Chosen)
	s.Demand = e.demand
	switch s.state {
	case allocating:
		s.Demand, s.newer = e.planned, &e.demand
	case admitted:
		s.Demand = e.planned
	case queued, waiting, pendingRelease, retrying, behind:
		if !same && !s.runs {
			s.give(queued, reservation{})
		}
	}
}
