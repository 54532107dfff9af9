package status

import (
	"cmp"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// tellApplied sets the container's user and resources: those that it was allocated, and of one that runs what
// the runtime reports. What that does not report, such as the memory request, stays as it was while a resize is
// in progress.
func tellApplied(in Input, s *v1.ContainerStatus, c *v1.Container, record cri.Container) {
	if user := record.Applied.User; user != nil {
		s.User = &v1.ContainerUser{Linux: user}
	}
	s.AllocatedResources = c.Resources.Requests.DeepCopy()
	s.Resources = applied(c.Resources, record)
	if was := in.derived.was[c.Name]; in.Resize.InProgress && was != nil && was.ContainerID == s.ContainerID &&
		was.Resources != nil && !sameAmounts(s.Resources, &c.Resources) {
		granted := *was.Resources
		if podspec.Brought(in.Pod, c.Name) != nil { // the limits of a container that runs have it in them
			granted.Limits = c.Resources.Limits
		}
		s.Resources = applied(granted, record)
	}
	s.Resources.Claims = slices.Clone(c.Resources.Claims)
}

// applied returns the resources with those in their place that the runtime reports of a container that runs.
func applied(granted v1.ResourceRequirements, record cri.Container) *v1.ResourceRequirements {
	s := &v1.ResourceRequirements{Limits: granted.Limits.DeepCopy(), Requests: granted.Requests.DeepCopy()}
	if record.State != cri.ContainerRunning {
		return s
	}
	a := record.Applied
	if m := cgroups.MilliCPU(a.Shares); a.Shares > cgroups.MinShares {
		correct(s.Requests, v1.ResourceCPU, resource.NewMilliQuantity(m, resource.DecimalSI))
	}
	if least := cgroups.MinQuota.Microseconds(); a.Quota > least {
		period := cmp.Or(a.Period, cgroups.DefaultPeriod.Microseconds())
		correct(s.Limits, v1.ResourceCPU,
			resource.NewMilliQuantity(a.Quota*int64(time.Second/time.Millisecond)/period,
				resource.DecimalSI))
	}
	if a.Memory > 0 {
		correct(s.Limits, v1.ResourceMemory,
			resource.NewQuantity(a.Memory, resource.BinarySI))
	}
	return s
}

func sameAmounts(a, b *v1.ResourceRequirements) bool {
	return equality.Semantic.DeepEqual(a.Requests, b.Requests) && equality.Semantic.DeepEqual(a.Limits, b.Limits)
}

// correct replaces an amount that differs, or adds a missing one: a container with limits, or
// requests, may run with one more, which is the pod's. A nil list stays nil.
func correct(list v1.ResourceList, name v1.ResourceName, is *resource.Quantity) {
	if set, ok := list[name]; list != nil && (!ok || set.Cmp(*is) != 0) {
		list[name] = *is
	}
}

// carry keeps the previous values of a container that the runtime no longer has.
func carry(s *v1.ContainerStatus, was *v1.ContainerStatus) {
	s.ImageID, s.ContainerID, s.User = was.ImageID, was.ContainerID, was.User
	s.AllocatedResources, s.Resources = was.AllocatedResources, was.Resources
}

// recursiveReadOnly reports whether the pod's handler supports recursive read-only mounts. While
// the handler is not known, all possible handlers must support them.
func (in Input) recursiveReadOnly() bool {
	its := slices.DeleteFunc(slices.Clone(in.Node.Handlers), func(h cri.RuntimeHandler) bool {
		return !in.mayHave(h.Name)
	})
	return len(its) > 0 && !slices.ContainsFunc(its, func(h cri.RuntimeHandler) bool {
		return !h.RecursiveReadOnlyMounts
	})
}

// mayHave reports whether the pod may run under that handler: the handler of a RuntimeClass is
// known only with the sandbox.
func (in Input) mayHave(handler string) bool {
	if len(in.Observed.Sandboxes) > 0 {
		return handler == in.Observed.Sandboxes[0].Handler
	}
	return handler == "" || in.Pod.Spec.RuntimeClassName != nil
}

// imageAt returns the runtime's name of the image that the newest run of a container has mounted there;
// "": none, or it is not to be told.
func (in Input) imageAt(container, mountPath string) string {
	records := in.derived.records[container]
	if !in.Node.ImageRefs || len(records) == 0 {
		return ""
	}
	return records[0].Applied.Images[path.Clean("/"+mountPath)]
}

// volumeMounts describes the mounts of a container as they are or will be made (KEP-3857).
func volumeMounts(in Input, c *v1.Container) (out []v1.VolumeMountStatus) {
	for _, m := range c.VolumeMounts {
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if wanted := m.RecursiveReadOnly; wanted != nil && *wanted != mode && in.recursiveReadOnly() {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		if ref := in.imageAt(c.Name, m.MountPath); ref != "" {
			s.VolumeStatus = &v1.VolumeStatus{Image: &v1.ImageVolumeStatus{ImageRef: ref}}
		}
		out = append(out, s)
	}
	return out
}

// tellPodResources sets the resources of the whole pod: what its containers have, or will have, and
// what resource claims bring. The runtime's report of a container includes the latter.
func tellPodResources(pod *v1.Pod, s *v1.PodStatus) {
	has, options := podspec.ByContainer(s), podspec.Sum()
	options.ExcludeOverhead = true
	brought := len(pod.Status.NodeAllocatableResourceClaimStatuses) > 0
	applied := outline(pod, func(c *v1.Container) v1.ResourceRequirements {
		if of := has[c.Name]; of != nil && of.Resources != nil && !brought {
			return *of.Resources
		}
		return c.Resources
	})
	s.Resources = &v1.ResourceRequirements{
		Limits:   resourcehelper.PodLimits(applied, options),
		Requests: resourcehelper.PodRequests(applied, options),
	}
	s.AllocatedResources = resourcehelper.PodRequests(outline(pod,
		func(c *v1.Container) v1.ResourceRequirements {
			if of := has[c.Name]; of != nil && of.Resources != nil {
				return v1.ResourceRequirements{Requests: of.AllocatedResources}
			}
			return c.Resources
		}), options)
}

// outline returns a pod with only what its total resources depend on.
func outline(pod *v1.Pod, of func(*v1.Container) v1.ResourceRequirements) *v1.Pod {
	out := &v1.Pod{Spec: v1.PodSpec{Resources: pod.Spec.Resources}}
	out.Status.NodeAllocatableResourceClaimStatuses = pod.Status.NodeAllocatableResourceClaimStatuses
	add := func(to []v1.Container, from []v1.Container) []v1.Container {
		for i := range from {
			c := &from[i]
			to = append(to, v1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy,
				Resources: of(c)})
		}
		return to
	}
	out.Spec.InitContainers = add(nil, pod.Spec.InitContainers)
	out.Spec.Containers = add(nil, pod.Spec.Containers)
	return out
}
