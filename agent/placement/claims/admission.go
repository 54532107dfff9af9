package claims

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Admission implements the Claims of agent/placement/admission. It follows the claims of a pod until they are
// prepared or released.
type Admission struct{ *Manager }

// Begin follows the pod's claims, unless they can be used already.
func (a Admission) Begin(pod *v1.Pod) {
	if _, lack := a.Uses(pod); lack.Reason != "" { // else they are prepared
		a.Manager.Begin(pod)
	}
}

// Prepare has these claims of the pod prepared, and ends Begin when they are.
func (a Admission) Prepare(ctx context.Context, pod *v1.Pod, claims []types.UID) error {
	err := a.Manager.Prepare(ctx, pod, claims...)
	if err == nil {
		a.End(pod.UID)
	}
	return err
}

// Release ends Begin and has the claims unprepared of which the pod is the last user.
func (a Admission) Release(pod types.UID) {
	a.End(pod)
	a.Manager.Release(pod)
}
