package agent

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/agent/health"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology/podspec"
)

// amiss says what has gone wrong with a pod since it was admitted, containers that end or cannot start
// and devices that are not healthy, and what is wrong now with the plugins of the devices it asks for.
func amiss(n node, p parts, namespace, name string) (wrong explain.Remarks) {
	for _, pod := range p.statuses.List() {
		if pod.Namespace != namespace || pod.Name != name {
			continue
		}
		wrong.Plugins = append(wrong.Plugins, wrongPlugins(pod, p.plugins.Peers())...)
		if status.Ended(pod.Status.Phase) {
			continue
		}
		wrong.Since, wrong.Logs = stuck(pod, n.cfg.Kubelet.PodLogsDir, time.Now())
		wrong.Since = append(wrong.Since, health.Amiss(n.store.State().Pods[pod.UID],
			p.plugins.Inventory())...)
	}
	return wrong
}

// wrongPlugins says what is wrong with plugins beyond their not being connected, of which a pod that
// waits for them tells.
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

// stuck lists the containers that wait for more than their turn, and those that ended with a failure
// and are to start again: how they ended, and where what they said is.
func stuck(pod *v1.Pod, logsDir string, now time.Time) (since []string, logs []explain.Log) {
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
			logs = append(logs, explain.Log{Container: s.Name, Path: path})
		}
		if len(parts) > 0 {
			since = append(since, "Container "+s.Name+": "+strings.Join(parts, "; "))
		}
	}
	return since, logs
}

// howItEnded says how and when a container did.
func howItEnded(end *v1.ContainerStateTerminated, now time.Time) string {
	text := fmt.Sprintf("it exited with %d (%s)", end.ExitCode, end.Reason)
	if !end.FinishedAt.IsZero() {
		text += " " + duration.HumanDuration(now.Sub(end.FinishedAt.Time)) + " ago"
	}
	return text
}
