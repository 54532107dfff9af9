package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	// MaxPods bounds the pods in the answer of a URL.
	MaxPods = 2000
	// maxContainers bounds the containers of a pod, including init containers.
	maxContainers = 1000
	// maxVolumes bounds the volumes of a pod, and the mounts of each container.
	maxVolumes = 1000
	// maxBytes bounds the memory, huge pages and storage of one container, maxCount its CPUs and its
	// devices of a resource. The sums over a pod's containers then do not overflow, not even in
	// thousandths of CPUs.
	maxAmount, maxCount = 1 << 50, 1_000_000_000
)

// validateAmount bounds the amount of a resource, and reports whether it is within the bounds.
func validateAmount(name v1.ResourceName, amount resource.Quantity, at place) bool {
	most := resource.NewQuantity(maxAmount, resource.BinarySI)
	if name == v1.ResourceCPU || podspec.IsExtended(name) {
		most = resource.NewQuantity(maxCount, resource.DecimalSI)
	}
	switch {
	case amount.Sign() < 0:
		at.invalid(amount.String(), "must not be negative")
	case amount.Cmp(*most) > 0:
		at.invalid(amount.String(), "must be at most %s", most)
	default:
		return true
	}
	return false
}

// validateSize bounds the work that a pod causes, before any other check. It stops at the first
// violation.
func validateSize(pod *v1.Pod, at *field.Path) field.ErrorList {
	s := &pod.Spec
	tooMany := func(at *field.Path, have, most int) field.ErrorList {
		return field.ErrorList{field.TooMany(at, have, most)}
	}
	if n := len(s.Containers) + len(s.InitContainers); n > maxContainers {
		return tooMany(at.Child("containers"), n, maxContainers)
	}
	if n := len(s.Volumes); n > maxVolumes {
		return tooMany(at.Child("volumes"), n, maxVolumes)
	}
	facts := cri.Facts{NodeName: s.NodeName}
	for _, list := range []struct {
		name       string
		containers []v1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range list.containers {
			c, at := &list.containers[i], at.Child(list.name).Index(i)
			if n := len(c.VolumeMounts); n > maxVolumes {
				return tooMany(at.Child("volumeMounts"), n, maxVolumes)
			}
			if long := cri.CheckLength(pod, c, facts); long != nil {
				return field.ErrorList{{Type: field.ErrorTypeTooLong,
					Field: at.String() + "." + long.Field, Detail: long.Why}}
			}
		}
	}
	return nil
}
