package record

import (
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Planned returns the pod as it is now, with the resources that the decision was made for.
func (r *Record) Planned(now *v1.Pod) *v1.Pod { return podspec.ResourcesOf(r.Pod).In(now) }

// resubmitted takes another spec. An assignment, also one under way, keeps the resources that it was
// planned for. A pod without a place looks for another one if other devices are chosen for it now.
func (s *step) resubmitted(e Resubmitted) {
	same := reflect.DeepEqual(s.Chosen, e.Demand.Chosen)
	s.Demand = e.Demand
	switch s.State {
	case Allocating:
		s.Demand, s.newer = e.Planned, &e.Demand
	case Admitted, Resizing:
		s.Demand = e.Planned
	case Queued, Waiting, PendingRelease, Retrying, Behind:
		if !same && !s.Runs {
			s.give(Queued, Reservation{})
		}
	}
}
