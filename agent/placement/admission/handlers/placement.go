package handlers

import (
	"fmt"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// ReasonPlacement is the reason for a pod that asks for a placement which it may not choose.
const ReasonPlacement = "PlacementForbidden"

// ReasonChoice is the reason for a pod whose devices are chosen in a way that cannot be followed,
// whatever the node has.
const ReasonChoice = "DeviceChoiceInvalid"

// Placement refuses pods whose annotations ask for a placement that there is none of, or that the
// rules do not let them choose, and those whose devices are chosen so that it cannot be followed.
func Placement(a decide.Attempt) *decide.Refusal {
	err := a.RulesErr
	if err == nil {
		err = checkCPUs(a, a.Rules.CPURules)
	}
	if err != nil {
		return &decide.Refusal{Reason: ReasonPlacement, Message: err.Error()}
	}
	if a.ChosenErr != nil {
		return &decide.Refusal{Reason: ReasonChoice, Message: a.ChosenErr.Error()}
	}
	return nil
}

// checkCPUs reports why the node cannot follow what the pod wants of its exclusive CPUs, however
// many are free.
func checkCPUs(a decide.Attempt, asked topology.CPURules) error {
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
	case cpumanager.PodExclusive(a.Pod, a.Rules) == 0:
		return fmt.Errorf("annotation %s: no container of the pod asks for CPUs of its own; let "+
			"limits equal requests for CPU and memory in every container, and one ask for a whole "+
			"number of CPUs", annotation)
	}
	return nil
}
