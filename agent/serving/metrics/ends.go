package metrics

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/metric"
)

func newEnds(s *metric.Set) *metrics.CounterVec {
	return s.Counters("kubelet_terminated_containers_total", "Containers that ended.",
		"container_type", "exit_code", "reason")
}

// countEnds counts the containers that have ended since the previous status. Ends from before the
// agent knew the pod do not count.
func countEnds(vec *metrics.CounterVec, c podstatus.Change) {
	if c.Begins() || c.Ends() {
		return
	}
	known := map[string]bool{}
	for _, end := range ends(c.Before) {
		known[end.state.ContainerID] = true
	}
	for _, end := range ends(c.After) {
		if id := end.state.ContainerID; id != "" && !known[id] {
			vec.WithLabelValues(end.kind, strconv.Itoa(int(end.state.ExitCode)),
				reasonOfEnd(end.state.Reason)).Inc()
		}
	}
}

// end is the termination of a container.
type end struct {
	kind  string
	state *v1.ContainerStateTerminated
}

// ends returns the last terminations of all containers in a status.
func ends(s v1.PodStatus) (out []end) {
	for kind, list := range map[string][]v1.ContainerStatus{
		"container": s.ContainerStatuses, "init_container": s.InitContainerStatuses,
		"ephemeral_container": s.EphemeralContainerStatuses,
	} {
		for _, c := range list {
			for _, state := range []*v1.ContainerStateTerminated{
				c.State.Terminated, c.LastTerminationState.Terminated,
			} {
				if state != nil {
					out = append(out, end{kind, state})
				}
			}
		}
	}
	return out
}

// reasonOfEnd bounds the values of the label: a runtime could invent others.
func reasonOfEnd(reason string) string {
	switch reason {
	case "Completed", "Error", "OOMKilled", "StartError", "ContainerCannotRun",
		"ContainerStatusUnknown":
		return reason
	}
	return "Other"
}
