package agent

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
)

// cpuPool keeps the CPU sets of containers, and what belongs to them.
func (a *Agent) cpuPool(tree *cgroups.Tree) *cpupool.Pool {
	k := &a.cfg.Kubelet
	a.parts.offline = offlineCPUs{}
	c := cpupool.Config{
		Static:  func() *cpumanager.Static { return a.facts.hardware.Get().CPUs },
		Memory:  func() *memory.Static { return a.facts.hardware.Get().Memory },
		Machine: a.Machine,
		State:   a.store.State, Runtime: a.client.Runtime(), Observer: a.observer,
		PodLimit: a.podLimit, Period: k.CPUManagerReconcilePeriod.Duration,
		Repaired: a.parts.measures.repaired,
	}
	if *k.CPUCFSQuota {
		period := cmp.Or(k.CPUCFSQuotaPeriod.Duration, cgroups.DefaultPeriod)
		c.Limit = func(cpus int) cgroups.CPULimit {
			return cgroups.CPULimit{
				Quota: cgroups.Quota(int64(cpus)*1000, period), Period: period.Microseconds(),
			}
		}
	}
	if tree != nil {
		c.Cgroups = tree
	}
	return cpupool.New(c)
}

// podCgroup lifts the pod's CPU quota when all its containers have CPUs of their own: the quota
// could only throttle them.
func (a *Agent) podCgroup(pod *v1.Pod) cgroups.PodOptions {
	k := &a.cfg.Kubelet
	exclusive := a.facts.hardware.Get().CPUs != nil &&
		a.store.State().Pods[pod.UID].WhollyExclusive(pod)
	return cgroups.PodOptions{
		NoQuota: !*k.CPUCFSQuota || exclusive,
		Period:  k.CPUCFSQuotaPeriod.Duration,
		Pids:    *k.PodPidsLimit,
	}
}

// podLimit is the CPU quota that a pod's cgroup would be made with now, zero if none; none, too, of
// a pod that no source has spoken of yet.
func (a *Agent) podLimit(uid types.UID) cgroups.CPULimit {
	rec, ok := a.pods.get(uid)
	if !ok {
		return cgroups.CPULimit{}
	}
	return cgroups.PodResources(rec.pod, a.podCgroup(rec.pod)).CPULimit()
}
