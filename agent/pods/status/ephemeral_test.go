package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// An ephemeral container has a status, is never ready, and does not affect its pod's status.
func TestEphemeral(t *testing.T) {
	pod := makePod("Never web two? one?")
	s := Generate(Input{Pod: pod, Facts: Facts{Observed: observe("sandbox one web")}, Now: at(50)})
	got := s.EphemeralContainerStatuses
	if len(got) != 2 || got[0].Name != "one" || got[0].State.Running == nil || got[0].Ready ||
		got[0].Started != nil || got[1].State.Waiting == nil {
		t.Errorf("statuses %+v", got)
	}
	if s.Phase != v1.PodRunning || conditionOf(s, v1.PodReady).Status != v1.ConditionTrue {
		t.Errorf("the pod is %s, %v", s.Phase, s.Conditions)
	}
	s = Generate(Input{Pod: pod, Facts: Facts{Observed: observe("sandbox one=3 web=0")}, Previous: s,
		Now: at(60)})
	if end := s.EphemeralContainerStatuses[0].State.Terminated; s.Phase != v1.PodSucceeded ||
		end == nil || end.ExitCode != 3 {
		t.Errorf("the pod is %s, %+v", s.Phase, end)
	}
	adopted := Adopt(s, v1.PodStatus{EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "x"}}})
	if n := len(adopted.EphemeralContainerStatuses); n != 2 {
		t.Errorf("the API server's are taken: %d", n)
	}
}
