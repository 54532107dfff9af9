package cpupool

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
)

// limitPods sets the CPU quota of running pods with exclusive containers. The agent owns the
// cgroups of pods, so the runtime is not involved.
func (u *update) limitPods(ctx context.Context, state allocation.State, known records) {
	if u.cfg.Cgroups == nil {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(state.Pods)) {
		if pod, ok := u.cfg.Observer.Get(uid); ok && pinnedAndAlive(state.Pods[uid], pod) {
			u.limitPod(ctx, uid, known.of(subject{pod: uid}))
		}
	}
}

func pinnedAndAlive(held allocation.Pod, pod cri.Pod) bool {
	return slices.ContainsFunc(pod.Containers, func(c cri.Container) bool {
		return !held.Containers[c.Name].CPUs().IsEmpty() && alive(pod, c.ID)
	})
}

func (u *update) limitPod(ctx context.Context, uid types.UID, known *record) {
	want := u.cfg.PodLimit(uid)
	if want == (cgroups.CPULimit{}) {
		return
	}
	group, has := u.reader.podQuota(ctx, uid, known)
	if has == nil {
		return
	}
	repair := known.limited == want
	if !has.Same(want) {
		if known.resting(want.String(), time.Now()) != nil {
			return
		}
		log := klog.FromContext(ctx).WithValues("podUID", uid, "from", *has, "to", want)
		if err := group.SetCPULimit(ctx, want); err != nil {
			log.Info("Changing the CPU quota of a pod failed and is tried again", "err",
				known.resisted(want.String(), err))
			return
		}
		if repair {
			log.Info("Repaired the CPU quota of a pod, which the agent had not changed")
			u.cfg.Repaired(CPUQuota)
		} else {
			log.Info("Changed the CPU quota of a pod")
		}
	}
	known.limited, known.unmoved = want, unmoved{}
}
