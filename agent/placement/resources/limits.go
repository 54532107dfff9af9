package resources

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology/podspec"
)

// limits are the values of a container, or of the cgroup of a pod, that follow from requests and
// limits and that a resize changes. Zero values are not set.
type limits struct {
	quota  cgroups.CPULimit
	shares int64
	memory int64 // the limit in bytes
	// beside says what else follows from memory requests and limits: protection, throttling, swap, the OOM
	// score; for people too.
	beside string
}

// limits returns those that follow from a spec.
func (c live) limits(n *Node, spec *v1.Pod) limits {
	if c.ID == "" {
		return podLimits(n.Pod(spec))
	}
	if of, _ := podspec.Find(spec, c.Name); of != nil {
		return containerLimits(n.container(spec, of, c.at))
	}
	return limits{}
}

func containerLimits(r *runtimeapi.LinuxContainerResources) limits {
	var beside []string
	if swap := r.MemorySwapLimitInBytes; swap != 0 {
		beside = append(beside, fmt.Sprint("with swap ", swap))
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		beside = append(beside, file+" "+r.Unified[file])
	}
	beside = append(beside, fmt.Sprint("OOM score ", r.OomScoreAdj))
	return limits{cgroups.CPULimit{Quota: r.CpuQuota, Period: r.CpuPeriod}, r.CpuShares,
		r.MemoryLimitInBytes, strings.Join(beside, ", ")}
}

func podLimits(r cgroups.Resources) limits {
	var beside []string
	if p := r.Protection; p != nil {
		beside = append(beside, fmt.Sprint("memory.min ", p.Min), fmt.Sprint("memory.low ", p.Low))
	}
	switch {
	case r.High == cgroups.Unlimited:
		beside = append(beside, "memory.high max")
	case r.High > 0:
		beside = append(beside, fmt.Sprint("memory.high ", r.High))
	}
	return limits{r.CPULimit(), int64(r.Shares), r.Memory, strings.Join(beside, ", ")}
}

// memoryText says what the memory limit is, and what goes with it.
func (l limits) memoryText() string {
	text := "unlimited"
	if l.memory > 0 {
		text = fmt.Sprintf("%d bytes", l.memory)
	}
	if l.beside != "" {
		text += " (" + l.beside + ")"
	}
	return text
}

// gaps lists what differs from the limits that were given before. A limit that is not set any more
// stays: the API server refuses to remove one from a running pod.
func (l limits) gaps(given limits) (out []gap) {
	if !l.quota.Same(given.quota) && l.quota.Quota != 0 {
		out = append(out, gap{what: CPUQuota, name: "CPU quota", want: l.quota.String(),
			has: given.quota.String(), phase: phaseOfQuota(given.quota, l.quota)})
	}
	if l.shares != given.shares {
		out = append(out, gap{what: CPUShares, name: "CPU shares", want: fmt.Sprint(l.shares),
			has: fmt.Sprint(given.shares)})
	}
	if l.memory != given.memory && l.memory != 0 || l.beside != given.beside {
		out = append(out, gap{what: Memory, name: "memory", want: l.memoryText(), has: given.memoryText(),
			phase: phaseOf(given.memory, l.memory)})
	}
	return out
}
