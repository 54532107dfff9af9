package resize

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/topology/podspec"
)

// Rules say which resizes the node does, as the kubelet's do.
type Rules struct {
	// StaticCPUs and StaticMemory: CPUs and memory are exclusive to containers that ask for them.
	StaticCPUs, StaticMemory bool
	// Unified: the node has cgroup v2. PodGroups: pods have cgroups of ours.
	Unified, PodGroups bool
	Enabled            func(gate string) bool
	// Swaps reports whether a container of the pod may swap.
	Swaps func(*v1.Pod, *v1.Container) bool
}

// Check returns why the node does not do a resize, in the kubelet's words; nil: it does, if there is room.
func (r Rules) Check(has, wants *v1.Pod) *decide.Resizing {
	guaranteed := podspec.QOSClass(wants) == v1.PodQOSGuaranteed
	switch {
	case r.swaps(has, wants):
		return decide.Infeasible("swap_limitation",
			"In-place resize of containers with swap is not supported.")
	case !r.Enabled("InPlacePodLevelResourcesVerticalScaling") && changesPod(has, wants):
		return decide.Infeasible("plr_feature_gate_off",
			"InPlacePodLevelResourcesVerticalScaling is disabled")
	case resizesVolume(has, wants):
		if no := r.volumes(); no != nil {
			return no
		}
	}
	switch {
	case guaranteed && r.StaticCPUs && !r.Enabled("InPlacePodVerticalScalingExclusiveCPUs") &&
		requestsOther(has, wants, v1.ResourceCPU):
		return decide.Infeasible("guaranteed_pod_cpu_manager_static_policy",
			`Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`)
	case guaranteed && r.StaticMemory && !r.Enabled("InPlacePodVerticalScalingExclusiveMemory") &&
		requestsOther(has, wants, v1.ResourceMemory):
		return decide.Infeasible("guaranteed_pod_memory_manager_static_policy",
			`Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`)
	}
	return nil
}

// volumes returns why the node does not change the sizes of emptyDirs in memory; nil: it does.
func (r Rules) volumes() *decide.Resizing {
	switch {
	case !r.Enabled("InPlacePodVerticalScalingMemoryBackedVolumes"):
		return decide.Infeasible("memory_volume_resize_gate_off", "Memory-backed emptyDir volume resize is disabled")
	case !r.Unified:
		return decide.Infeasible("cgroups_v1_unsupported",
			"Memory-backed emptyDir volume resize is not supported on cgroups v1")
	case !r.PodGroups:
		return decide.Infeasible("no_pod_cgroups",
			"Memory-backed emptyDir volume resize needs cgroups of pods; set cgroupsPerQOS")
	}
	return nil
}

// resizesVolume reports whether the size of an emptyDir in memory differs.
func resizesVolume(has, wants *v1.Pod) bool {
	return podspec.Resources{Pod: wants.Spec.Resources, Volumes: podspec.ResourcesOf(has).Volumes}.In(wants) != wants
}

// swaps reports whether the memory request of a container changes that may swap: what it may swap follows
// from that. A container that is started anew gets another limit.
func (r Rules) swaps(has, wants *v1.Pod) bool {
	for c := range podspec.Containers(wants) {
		before, _ := podspec.Find(has, c.Name)
		if before == nil || anew(before, v1.ResourceMemory) ||
			before.Resources.Requests.Memory().Cmp(*c.Resources.Requests.Memory()) == 0 {
			continue
		}
		if r.Swaps(has, before) || r.Swaps(wants, c) {
			return true
		}
	}
	return false
}

func anew(c *v1.Container, name v1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}

// changesPod reports whether the resources of the pod as a whole differ.
func changesPod(has, wants *v1.Pod) bool {
	a, b := podspec.ResourcesOf(has), podspec.ResourcesOf(wants)
	a.Containers = b.Containers
	return a.In(wants) != wants
}

// requestsOther reports whether a container requests another amount.
func requestsOther(has, wants *v1.Pod, name v1.ResourceName) bool {
	was := podspec.ResourcesOf(has).Containers
	for c := range podspec.Containers(wants) {
		before, is := was[c.Name].Requests[name], c.Resources.Requests[name]
		if before.Cmp(is) != 0 {
			return true
		}
	}
	return false
}
