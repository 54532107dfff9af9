package cgroups

import (
	"strconv"

	oci "github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/topology/podspec"
)

// Reserve keeps the memory that pods request from pods of lower QoS classes (qosReserved). The zero
// value keeps nothing.
type Reserve struct {
	// Percent is the part of the requests that is kept; 0: none, and the classes have no limit.
	Percent int64
	// Memory is how much all pods together may use, in bytes.
	Memory int64
}

// limits returns the memory limits of the QoS classes while these pods are on the node, in bytes.
// Burstable pods get what guaranteed ones leave, and best-effort pods what burstable ones leave.
func (r Reserve) limits(pods []*v1.Pod) map[v1.PodQOSClass]int64 {
	if r.Percent == 0 || r.Memory == 0 {
		return nil
	}
	requested := map[v1.PodQOSClass]int64{}
	for _, pod := range pods {
		requests := resourcehelper.PodRequests(pod, podspec.Sum())
		requested[podspec.QOSClass(pod)] += requests.Memory().Value()
	}
	kept := func(class v1.PodQOSClass) int64 { return requested[class] * r.Percent / 100 }
	burstable := r.Memory - kept(v1.PodQOSGuaranteed)
	return map[v1.PodQOSClass]int64{
		v1.PodQOSBurstable:  burstable,
		v1.PodQOSBestEffort: burstable - kept(v1.PodQOSBurstable),
	}
}

// fit returns the limit, or what the cgroup uses if that is more after the kernel reclaimed what it
// can: a limit below that is refused by cgroup v1, and makes v2 kill processes. It is at least a
// page, since 0 would leave the cgroup's limit as it is.
func (d directory) fit(limit int64) int64 {
	const least = 4096
	limit = max(limit, least)
	used, err := d.memoryUsed()
	if err != nil || used <= limit { // without the cgroup nothing is used
		return limit
	}
	file, amount := "memory.limit_in_bytes", limit // cgroup v1 reclaims for it, or refuses
	if d.unified {
		file, amount = "memory.reclaim", used-limit // since kernel 5.19
	}
	// An incomplete reclaim is an error too: the rest is still used.
	_ = oci.WriteFile(d.path, file, strconv.FormatInt(amount, 10))
	if used, err = d.memoryUsed(); err != nil {
		return limit
	}
	return max(limit, used)
}
