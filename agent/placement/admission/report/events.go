package report

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// messagePreempting is the kubelet's message for a pod that makes way.
const messagePreempting = "Preempted in order to admit critical pod"

// reasonPreferenceIgnored is the reason of the event of a preference that was not followed. The
// kubelet has none.
const reasonPreferenceIgnored = "DevicePreferenceIgnored"

// Recorder records events of pods and their containers; *event.Recorder does.
type Recorder interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Container(of podspec.Ref, eventType, reason, message string)
}

// Events records what the kubelet records of decisions on pods.
type Events struct{ Recorder }

// Lack records what a pod lacks, besides that it waits for it.
func (e Events) Lack(r Result) {
	switch lack := r.Lack; {
	case !lack.Missing(), lack.Usual:
	case lack.Container == "":
		e.Pod(r.Pod, v1.EventTypeWarning, lack.Reason, lack.Why)
	default:
		e.Container(podspec.Ref{Pod: r.Pod, Container: lack.Container},
			v1.EventTypeWarning, lack.Reason, lack.Why)
	}
}

// Unadvised records that a plugin's preference was not followed.
func (e Events) Unadvised(pod *v1.Pod, key allocation.AskKey, err error) {
	e.Pod(pod, v1.EventTypeWarning, reasonPreferenceIgnored, fmt.Sprintf(
		"Container %s: the agent chose devices of %s without the device plugin's "+
			"preference: %v", key.Container, key.Resource, err))
}

// Preempted records that a pod makes way, and returns why it ends.
func (e Events) Preempted(p Preemption) (reason, message string) {
	e.Pod(p.Victim, v1.EventTypeWarning, podspec.ReasonPreempting, messagePreempting)
	return podspec.ReasonPreempting, messagePreempting
}
