package admission

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// ReasonPlacement is the reason for a pod that asks for a placement which it may not choose.
const ReasonPlacement = "PlacementForbidden"

// Placement refuses pods whose annotations ask for a placement that there is none of, or that the
// rules do not let them choose.
func Placement(rules topology.Rules) Handler {
	return func(a Attempt) *Refusal {
		asked, err := podspec.Rules(a.Pod, rules)
		if err == nil {
			err = a.checkCPUs(asked.CPURules)
		}
		if err != nil {
			return &Refusal{Reason: ReasonPlacement, Message: err.Error()}
		}
		return nil
	}
}

// checkCPUs reports why the node cannot follow what the pod wants of its exclusive CPUs, however
// many are free.
func (a Attempt) checkCPUs(asked topology.CPURules) error {
	annotation := podspec.AnnotationWholeCores
	if asked.Isolated {
		annotation = podspec.AnnotationIsolated
	}
	switch {
	case asked == topology.CPURules{}:
	case a.CPUs == nil:
		return fmt.Errorf("annotation %s: no container gets CPUs of its own on this node, whose "+
			"cpuManagerPolicy is none; choose another node, or set static", annotation)
	case asked.Isolated && !a.CPUs.Isolates():
		return fmt.Errorf("annotation %s: this node keeps no CPUs isolated; choose another one, or "+
			"set --isolated-cpus", annotation)
	case cpumanager.PodExclusive(a.Pod) == 0:
		return fmt.Errorf("annotation %s: no container of the pod asks for CPUs of its own; let "+
			"limits equal requests for CPU and memory in every container, and one ask for a whole "+
			"number of CPUs", annotation)
	}
	return nil
}

// roomFor is the room for a pod, by the rules that it asks for. One that runs keeps what it has,
// whatever it asks for.
func (s *Snapshot) roomFor(pod *v1.Pod, o allocation.Others, own allocation.Pod) allocation.Room {
	room := s.room(o, own)
	room.Rules, _ = podspec.Rules(pod, s.rules) // a handler has told of an error
	return room
}
