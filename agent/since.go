package agent

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/health"
	"github.com/numalet/numalet/agent/status"
)

// since says what has gone wrong with a pod that was admitted: containers that cannot start, and
// devices that are not healthy.
func since(n node, p parts, namespace, name string) (out []string) {
	for _, pod := range p.statuses.List() {
		if pod.Namespace != namespace || pod.Name != name || status.Ended(pod.Status.Phase) {
			continue
		}
		out = append(out, stuck(pod)...)
		out = append(out, health.Amiss(n.store.State().Pods[pod.UID], p.plugins.Inventory())...)
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
