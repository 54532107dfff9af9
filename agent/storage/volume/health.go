package volume

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Health has the adverse conditions of a pod's volumes, by their names in the pod. Volumes whose
// drivers have not said anything yet are not there.
type Health map[string][]v1.VolumeHealthCondition

// Health has drivers asked for the health of their persistent volumes that pods have, or tried to have
// in this run of the agent. It waits a moment for each volume; without an answer of its driver, a volume keeps
// its last conditions. Call it from one goroutine.
func (m *Meter) Health(ctx context.Context, pods []*v1.Pod) map[types.UID]Health {
	out := map[types.UID]Health{}
	var looks []reading[[]v1.VolumeHealthCondition]
	about := map[string]PodVolume{}
	for u := range m.inUse(pods) {
		if u.pvc == "" || u.plugin.driver == nil || !m.due.begun(u.pod.UID) {
			continue
		}
		key := "health of " + string(u.pod.UID) + "/" + u.volume.Name
		about[key] = PodVolume{u.pod.UID, u.volume.Name}
		looks = append(looks, reading[[]v1.VolumeHealthCondition]{key: key,
			measure: func() ([]v1.VolumeHealthCondition, error) {
				return u.plugin.driver.health(m.cfg, u.pod, u.used)
			}})
	}
	m.healths.look(ctx, m.calls, looks, func(string, time.Duration) {})
	for key, of := range about {
		a, is := m.healths.last(key)
		if is && out[of.Pod] == nil {
			out[of.Pod] = Health{}
		}
		if is {
			out[of.Pod][of.Volume] = a.value
		}
	}
	return out
}
