package metrics

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/podstatus"
)

// Each end of a container is counted once, as its state or its last state.
func TestEnds(t *testing.T) {
	m, registry := fresh(t)
	ended := func(id, reason string, code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ContainerID: id, Reason: reason, ExitCode: code}}
	}
	status := func(state, last v1.ContainerState) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
			{State: state, LastTerminationState: last}}}
	}
	none := v1.ContainerState{}
	before := v1.PodStatus{}
	for _, after := range []v1.PodStatus{
		status(ended("r://0", "Error", 9), none), // before the agent started
		status(none, ended("r://0", "Error", 9)),
		status(ended("r://1", "Error", 1), ended("r://0", "Error", 9)),
		status(none, ended("r://1", "Error", 1)),
		status(ended("r://2", "OOMKilled", 137), ended("r://1", "Error", 1)),
		status(ended("r://3", "made up", 1), ended("r://2", "OOMKilled", 137)),
		{},
	} {
		m.Status(podstatus.Change{Pod: testPod(), Before: before, After: after})
		before = after
	}
	var got []string
	for _, f := range mustGather(t, registry) {
		if f.GetName() != "kubelet_terminated_containers_total" {
			continue
		}
		for _, one := range f.GetMetric() {
			line := fmt.Sprint(one.GetCounter().GetValue())
			for _, label := range one.GetLabel() {
				line += " " + label.GetValue()
			}
			got = append(got, line)
		}
	}
	const want = "1 container 1 Error, 1 container 1 Other, 1 container 137 OOMKilled"
	if strings.Join(got, ", ") != want {
		t.Errorf("counted %q, want %q", got, want)
	}
}
