package admission

import (
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// planned is the pod as it is now with the resources that it was decided on with.
func (r *record) planned(now *v1.Pod) *v1.Pod { return podspec.ResourcesOf(r.Pod).In(now) }

// resubmitted takes another spec. What is being assigned to the pod, or is its own, is so with the
// resources that it was planned with. A pod without a place for which other devices are chosen now
// looks for another one.
func (s *step) resubmitted(e resubmitted) {
	same := reflect.DeepEqual(s.Chosen, e.demand.Chosen)
	s.Demand = e.demand
	switch s.state {
	case allocating:
		s.Demand, s.newer = e.planned, &e.demand
	case admitted:
		s.Demand = e.planned
	case queued, waiting, brief, retrying, behind:
		if !same && !s.runs {
			s.give(queued, reservation{})
		}
	}
}
