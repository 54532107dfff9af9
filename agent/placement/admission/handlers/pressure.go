package handlers

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/topology/podspec"
)

// Pressure refuses pods while memory, a disk or PIDs of the node are short. Critical pods pass. If
// memory alone is short, only BestEffort pods that do not tolerate its taint are refused: they would be
// the first to be evicted. If compares, tolerations may compare numbers
// (TaintTolerationComparisonOperators).
func Pressure(compares bool) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		short := a.State.Pressure
		if len(short) == 0 || a.Rank.Critical {
			return nil
		}
		memory := len(short) == 1 && short[0] == v1.NodeMemoryPressure
		if memory && (a.Rank.QoS != v1.PodQOSBestEffort ||
			toleratesMemoryPressure(a.Pod, compares)) {
			return nil
		}
		return &decide.Refusal{Reason: podspec.ReasonEvicted,
			Message: fmt.Sprintf("The node had condition: %v. ", short)}
	}
}

func toleratesMemoryPressure(pod *v1.Pod, compares bool) bool {
	return corev1helpers.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations,
		&v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}, compares)
}
