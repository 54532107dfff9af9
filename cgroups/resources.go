package cgroups

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/internal/quantity"
	"github.com/numalet/numalet/topology/podspec"
)

// Unlimited is a quota or memory limit without a bound.
const Unlimited = -1

// unboundHugePages is the huge page limit in bytes of cgroups that must not limit them.
const unboundHugePages = 1 << 62

// Resources are the values of one cgroup. Zero fields leave the cgroup's value as it is.
type Resources struct {
	// Shares is cpu.shares; on cgroup v2 it is written as cpu.weight.
	Shares uint64
	// Quota is the CPU time in microseconds per Period, or Unlimited.
	Quota  int64
	Period time.Duration
	// Memory is the limit in bytes, or Unlimited.
	Memory int64
	// Protection and High, which is memory.high in bytes or Unlimited, only apply to cgroup v2.
	Protection *Protection
	High       int64
	Pids       int64
	// HugePages are limits in bytes by page size in bytes. Other sizes of the host are limited to
	// 0.
	HugePages map[int64]int64
}

// PodOptions are the parts of the configuration that affect a pod's cgroup.
type PodOptions struct {
	// NoQuota lifts CPU limits: cpuCFSQuota is false, or the pod has exclusive CPUs.
	NoQuota bool
	// Period is cpuCFSQuotaPeriod; 0 means DefaultPeriod.
	Period time.Duration
	// Pids is podPidsLimit; only a positive value limits the pod's processes.
	Pids int64
}

// PodResources returns the values of the pod's cgroup.
func PodResources(pod *v1.Pod, o PodOptions) Resources {
	r := Resources{Pids: max(o.Pids, 0), HugePages: map[int64]int64{}}
	limits := resourcehelper.PodLimits(pod, podspec.Sum())
	for name, q := range limits {
		if size, ok := quantity.PageSize(name); ok {
			r.HugePages[size] = q.Value()
		}
	}
	if podspec.QOSClass(pod) == v1.PodQOSBestEffort {
		r.Shares = MinShares
		return r
	}

	requests := resourcehelper.PodRequests(pod, podspec.Sum())
	r.Shares = Shares(requests.Cpu().MilliValue())
	if limited(pod, v1.ResourceCPU) {
		r.Period = cmp.Or(o.Period, DefaultPeriod)
		r.Quota = Quota(limits.Cpu().MilliValue(), r.Period)
		if o.NoQuota {
			r.Quota = Unlimited
		}
	}
	if limited(pod, v1.ResourceMemory) {
		r.Memory = limits.Memory().Value()
	}
	return r
}

// limited reports whether the pod's spec limits a resource: the pod has a limit itself or all its
// containers have one.
func limited(pod *v1.Pod, name v1.ResourceName) bool {
	if resourcehelper.IsPodLevelLimitsSet(pod) {
		if q := pod.Spec.Resources.Limits[name]; q.Sign() > 0 {
			return true
		}
	}
	for c := range podspec.Containers(pod) {
		if q := c.Resources.Limits[name]; q.Sign() <= 0 {
			return false
		}
	}
	return true
}

// pidResource is the name of process ids in kubeReserved and systemReserved.
const pidResource v1.ResourceName = "pid"

// NodeResources returns the values of the cgroup of all pods: the node's capacity and number of
// processes minus the reservations. A reservation above the capacity leaves nothing; pids of 0 are
// not known and not limited.
func NodeResources(capacity v1.ResourceList, pids int64, reserved ...v1.ResourceList) Resources {
	left := capacity.DeepCopy()
	if pids > 0 {
		left[pidResource] = *resource.NewQuantity(pids, resource.DecimalSI)
	}
	for _, list := range reserved {
		for name, q := range list {
			if have, ok := left[name]; ok {
				have.Sub(q)
				left[name] = have
			}
		}
	}
	r := Resources{
		Shares:    Shares(left.Cpu().MilliValue()),
		Memory:    max(left.Memory().Value(), 0),
		HugePages: map[int64]int64{},
	}
	if q, ok := left[pidResource]; ok {
		r.Pids = max(q.Value(), 1) // 0 would leave the cgroup's limit as it is
	}
	for name, q := range left {
		if size, ok := quantity.PageSize(name); ok {
			r.HugePages[size] = max(q.Value(), 0)
		}
	}
	return r
}

// QOSResources returns the values of the burstable and best-effort cgroups while these pods are on
// the node, and the protection of the one above them, which holds the guaranteed pods. Huge pages
// are only limited above and below them.
func QOSResources(pods []*v1.Pod, sizes []int64, m MemoryQoS) map[v1.PodQOSClass]Resources {
	var milliCPU int64
	var sum Protection // Min of the guaranteed pods, Low of the burstable ones
	for _, pod := range pods {
		class := podspec.QOSClass(pod)
		requests := resourcehelper.PodRequests(pod, podspec.Sum())
		if class == v1.PodQOSBurstable {
			milliCPU += requests.Cpu().MilliValue()
		}
		p := m.Protect(class, requests.Memory().Value())
		sum.Min, sum.Low = sum.Min+p.Min, sum.Low+p.Low
	}
	unbound := map[int64]int64{}
	for _, size := range sizes {
		unbound[size] = unboundHugePages
	}
	return map[v1.PodQOSClass]Resources{
		v1.PodQOSGuaranteed: {Protection: &Protection{Min: sum.Min + sum.Low, Low: sum.Low}},
		v1.PodQOSBurstable: {Shares: Shares(milliCPU), HugePages: unbound,
			Protection: &Protection{Low: sum.Low}},
		v1.PodQOSBestEffort: {Shares: MinShares, HugePages: maps.Clone(unbound)},
	}
}

// PageSizeName returns the kernel's name of a page size in the files of the hugetlb controller
// (hugetlb_cgroup.c: 64KB, 2MB, 1GB).
func PageSizeName(bytes int64) string {
	const kb, mb, gb = 1 << 10, 1 << 20, 1 << 30
	switch {
	case bytes >= gb:
		return fmt.Sprintf("%dGB", bytes/gb)
	case bytes >= mb:
		return fmt.Sprintf("%dMB", bytes/mb)
	default:
		return fmt.Sprintf("%dKB", bytes/kb)
	}
}
