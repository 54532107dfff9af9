package cpupool

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
)

// limitPods gives running pods in which containers have CPUs of their own the CPU quota that they
// should have. Their cgroups are the agent's, so that no runtime is asked.
func (p *Pool) limitPods(ctx context.Context, state allocation.State) {
	if p.cfg.Cgroups == nil || p.cfg.PodLimit == nil {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(state.Pods)) {
		if pod, ok := p.cfg.Observer.Get(uid); ok && pinnedAndAlive(state.Pods[uid], pod) {
			p.limitPod(ctx, uid)
		}
	}
}

func pinnedAndAlive(held allocation.Pod, pod cri.Pod) bool {
	for _, c := range pod.Containers {
		if !held.Containers[c.Name].CPUs.IsEmpty() && alive(pod, c.ID) {
			return true
		}
	}
	return false
}

func (p *Pool) limitPod(ctx context.Context, uid types.UID) {
	want, key := p.cfg.PodLimit(uid), podKey(uid)
	if want == (cgroups.CPULimit{}) {
		return
	}
	group, err := p.cfg.Cgroups.FindPod(uid)
	if err != nil {
		return // it is just being made, or gone
	}
	has, err := group.CPULimit()
	if err != nil {
		return
	}
	if has.Same(want) {
		p.keeps(key, want)
		return
	}
	repair, resting := p.deviates(key, want)
	if resting {
		return
	}
	log := klog.FromContext(ctx).WithValues("podUID", uid, "from", has, "to", want)
	if err := group.SetCPULimit(ctx, want); err != nil {
		log.Info("Changing the CPU quota of a pod is tried again", "err",
			p.resisted(key, want.String(), err))
		return
	}
	p.keeps(key, want)
	if !repair {
		log.Info("Changed the CPU quota of a pod")
		return
	}
	log.Info("Repaired the CPU quota of a pod, which the agent had not changed")
	p.repaired(CPUQuota)
}

// keeps says that a pod has the quota that it should have.
func (p *Pool) keeps(key string, quota cgroups.CPULimit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limited[key] = quota
	delete(p.unmoved, key)
}

// deviates tells of a pod with another quota than it should have whether it had this one before,
// and whether its turn to be given it again has not come.
func (p *Pool) deviates(key string, quota cgroups.CPULimit) (repair, resting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limited[key] == quota, p.restingLocked(key, quota.String()) != nil
}
