package cpupool

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
)

// view is which set each live container should have and which it has, by container id. Those that
// have what they should are left out.
type view struct {
	want     map[string]cpuset.CPUSet
	observed map[string]string
	owner    map[string]types.UID
}

// compare looks at the live containers of all pods.
func (p *Pool) compare(state allocation.State, shared cpuset.CPUSet) view {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := view{map[string]cpuset.CPUSet{}, map[string]string{}, map[string]types.UID{}}
	live := map[string]bool{}
	sharedText := shared.String()
	for _, pod := range p.cfg.Observer.All() {
		for _, c := range pod.Containers {
			if c.State != cri.ContainerRunning && c.State != cri.ContainerCreated {
				continue
			}
			live[c.ID] = true
			want, text := shared, sharedText
			if own := state.Pods[pod.UID].Containers[c.Name].CPUs; !own.IsEmpty() {
				want, text = own, own.String()
			}
			if has := p.hasLocked(pod, c); has != text {
				v.want[c.ID], v.observed[c.ID], v.owner[c.ID] = want, has, pod.UID
			}
		}
	}
	maps.DeleteFunc(p.told, func(id string, _ told) bool { return !live[id] })
	return v
}

// hasLocked is the set that the container has: what was reported, or told since, or told to a
// runtime that does not report sets.
func (p *Pool) hasLocked(pod cri.Pod, c cri.Container) string {
	if t, ok := p.told[c.ID]; ok && (c.CPUSet == "" || !t.at.Before(pod.ReadAt)) {
		return t.cpus.String()
	}
	return c.CPUSet
}

// shrinkingFirst splits the updates so that nothing grows before everything that shrinks did.
func shrinkingFirst(updates []cpumanager.Update) [][]cpumanager.Update {
	var shrink, grow []cpumanager.Update
	for _, u := range updates {
		if u.To.IsSubsetOf(u.From) || u.From.IsEmpty() {
			shrink = append(shrink, u)
		} else {
			grow = append(grow, u)
		}
	}
	return [][]cpumanager.Update{shrink, grow}
}
