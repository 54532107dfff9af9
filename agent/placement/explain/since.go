package explain

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology/podspec"
)

// Amiss returns what went wrong with a pod since it was admitted, and what is wrong now with the
// device plugins that it asks for devices. A pod that has ended has no more of the former. devices
// returns what is wrong with those that it holds.
func Amiss(pod *v1.Pod, peers []devicemanager.Peer, logsDir string, now time.Time,
	devices func() []string) Remarks {
	r := Remarks{Plugins: wrongPlugins(pod, peers)}
	if !podspec.Ended(pod.Status.Phase) {
		r.Since, r.Logs = stuck(pod, logsDir, now)
		r.Since = append(r.Since, devices()...)
		r.Since = append(r.Since, resizes(pod)...)
	}
	return r
}

// wrongPlugins returns what is wrong with plugins, except that they are not connected: a pod that
// waits for them says so itself.
func wrongPlugins(pod *v1.Pod, peers []devicemanager.Peer) (out []string) {
	asked := podspec.AllDevices(pod)
	for _, peer := range peers {
		if asked[peer.Resource] == 0 {
			continue
		}
		for _, wrong := range peer.Complaints {
			out = append(out, peer.Resource+": "+wrong.Message)
		}
		for _, call := range peer.Failing() {
			out = append(out, peer.Resource+": "+call)
		}
	}
	return out
}

// stuck describes the containers that wait for more than their turn or failed: how they ended, and
// where their logs are.
func stuck(pod *v1.Pod, logsDir string, now time.Time) (since []string, logs []Log) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses) {
		var parts []string
		end, waits := s.State.Terminated, s.State.Waiting
		if waits != nil && waits.Message != "" {
			parts = append(parts, fmt.Sprintf("waiting, %s: %s", waits.Reason, waits.Message))
			end = s.LastTerminationState.Terminated
		}
		if end != nil && (end.ExitCode != 0 || len(parts) > 0) {
			path := filepath.Join(cri.PodLogDir(logsDir, pod),
				cri.ContainerLogPath(s.Name, uint32(max(s.RestartCount, 0))))
			parts = append(parts, fmt.Sprintf("%s, %d restarts, its log is %s", howItEnded(end, now),
				s.RestartCount, path))
			logs = append(logs, Log{Container: s.Name, Path: path})
		}
		if len(parts) > 0 {
			since = append(since, "Container "+s.Name+": "+strings.Join(parts, "; "))
		}
	}
	return since, logs
}

// resizes says how far the pod's resize is, and what would let it through.
func resizes(pod *v1.Pod) (out []string) {
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Status != v1.ConditionTrue:
		case c.Type == v1.PodResizePending && c.Reason == v1.PodReasonDeferred:
			out = append(out, "Its resize waits: "+c.Message+"; it is decided on again when a pod ends or shrinks, and "+
				"when the machine has more")
		case c.Type == v1.PodResizePending:
			out = append(out, "Its resize is not done: "+c.Message+"; have it ask for what it has, or delete it and "+
				"create it with what it is to have")
		case c.Type == v1.PodResizeInProgress && c.Message != "":
			out = append(out, "Its resize is not complete: "+c.Message+"; it is tried again")
		case c.Type == v1.PodResizeInProgress:
			out = append(out, "Its resize is being carried out")
		}
	}
	return out
}

// howItEnded describes the exit of a container.
func howItEnded(end *v1.ContainerStateTerminated, now time.Time) string {
	text := fmt.Sprintf("it exited with %d (%s)", end.ExitCode, end.Reason)
	if !end.FinishedAt.IsZero() {
		text += " " + duration.HumanDuration(now.Sub(end.FinishedAt.Time)) + " ago"
	}
	return text
}
