package cpupool

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
)

// view is which set each live container should have and which it has, by container id. Those that
// have what they should are left out.
type view struct {
	online   cpuset.CPUSet
	want     map[string]cpuset.CPUSet
	observed map[string]string
	owner    map[string]types.UID
	quota    map[string]Quota
	// repair: the runtime believes that the container has what it should.
	repair map[string]bool
	// resting are the containers whose turn to be tried again has not come.
	resting []error
}

// live is a container that has a CPU set, or will have one before it runs.
type live struct {
	cri.Container
	pod    cri.Pod
	kernel string // what the kernel has, if read
	read   bool
}

// liveContainers looks at the live containers of all pods.
func (p *Pool) liveContainers() (out []live) {
	for _, pod := range p.cfg.Observer.All() {
		for _, c := range pod.Containers {
			if c.State != cri.ContainerRunning && c.State != cri.ContainerCreated {
				continue
			}
			l := live{Container: c, pod: pod}
			l.kernel, l.read = p.inKernel(pod.UID, c.ID)
			out = append(out, l)
		}
	}
	return out
}

// compare finds the containers whose set is not what it should be.
func (p *Pool) compare(wanted wanted) view {
	containers := p.liveContainers()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(containers)
	v := view{
		online: wanted.online, want: map[string]cpuset.CPUSet{}, observed: map[string]string{},
		owner: map[string]types.UID{}, quota: map[string]Quota{}, repair: map[string]bool{},
	}
	for _, c := range containers {
		told := p.toldLocked(c)
		want, text := wanted.of(c, told)
		has := told
		if c.read {
			has = c.kernel
		}
		if want.IsEmpty() || has == text || matches(has, want, v.online) {
			continue
		}
		if err := p.restingLocked(c.ID, want); err != nil {
			v.resting = append(v.resting, err)
			continue
		}
		v.want[c.ID], v.observed[c.ID], v.owner[c.ID] = want, has, c.pod.UID
		v.quota[c.ID] = wanted.quota(c)
		_, tried := p.unmoved[c.ID]
		v.repair[c.ID] = c.read && !tried && matches(told, want, v.online)
	}
	return v
}

// forgetLocked drops what is known of containers that are no more.
func (p *Pool) forgetLocked(containers []live) {
	ids := make(map[string]bool, len(containers))
	for _, c := range containers {
		ids[c.ID] = true
	}
	maps.DeleteFunc(p.told, func(id string, _ told) bool { return !ids[id] })
	maps.DeleteFunc(p.unmoved, func(id string, _ unmoved) bool { return !ids[id] })
	maps.DeleteFunc(p.groups, func(id string, _ cgroups.Container) bool { return !ids[id] })
}

// toldLocked is the set that the runtime has: what it reported, or was told since, or was told and
// does not report.
func (p *Pool) toldLocked(c live) string {
	if t, ok := p.told[c.ID]; ok && (c.CPUSet == "" || !t.at.Before(c.pod.ReadAt)) {
		return t.cpus.String()
	}
	return c.CPUSet
}

// matches tells whether a set lets a container run on the CPUs of want, which are online, and on no
// others. Offline ones in it are cgroup v2's way to remember them.
func matches(has string, want, online cpuset.CPUSet) bool {
	set, err := cpuset.Parse(has)
	return err == nil && !set.IsEmpty() && set.Intersection(online).Equals(want)
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

func alive(pod cri.Pod, containerID string) bool {
	for _, c := range pod.Containers {
		if c.ID == containerID {
			return c.State == cri.ContainerRunning || c.State == cri.ContainerCreated
		}
	}
	return false
}
