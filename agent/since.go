package agent

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/health"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology/podspec"
)

// amiss says what has gone wrong with a pod since it was admitted, containers that cannot start and
// devices that are not healthy, and what is wrong now with the plugins of the devices it asks for.
func amiss(n node, p parts, namespace, name string) (since, plugins []string) {
	for _, pod := range p.statuses.List() {
		if pod.Namespace != namespace || pod.Name != name {
			continue
		}
		plugins = append(plugins, wrongPlugins(pod, p.plugins.Peers())...)
		if status.Ended(pod.Status.Phase) {
			continue
		}
		since = append(since, stuck(pod)...)
		since = append(since, health.Amiss(n.store.State().Pods[pod.UID],
			p.plugins.Inventory())...)
	}
	return since, plugins
}

// wrongPlugins says what is wrong with plugins beyond their not being connected, of which a pod that
// waits for them tells.
func wrongPlugins(pod *v1.Pod, peers []deviceplugin.Peer) (out []string) {
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

// stuck lists the containers that wait for more than their turn.
func stuck(pod *v1.Pod) (out []string) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses) {
		w := s.State.Waiting
		if w != nil && w.Message != "" {
			out = append(out, fmt.Sprintf("Container %s: waiting, %s: %s", s.Name, w.Reason,
				w.Message))
		}
	}
	return out
}
