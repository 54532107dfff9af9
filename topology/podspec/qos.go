package podspec

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// QOSClass returns the pod's quality of service class as its spec defines it
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/, pod level: KEP-2837). It ignores
// the pod's status, and goes through all containers at each call.
//
// CPU and memory decide; zero quantities count as not set. Pod-level resources, if given, speak for
// all containers. Init containers count like the others, ephemeral ones never do.
func QOSClass(pod *v1.Pod) (class v1.PodQOSClass) {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return qosOf(*pod.Spec.Resources)
	}
	for c := range Containers(pod) {
		class = together(class, qosOf(c.Resources))
	}
	return cmp.Or(class, v1.PodQOSBestEffort)
}

// qosOf returns the class of requests and limits.
func qosOf(r v1.ResourceRequirements) (class v1.PodQOSClass) {
	for _, name := range [2]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		request, limit, own := r.Requests[name], r.Limits[name], v1.PodQOSGuaranteed
		switch {
		case request.Cmp(limit) != 0:
			own = v1.PodQOSBurstable
		case limit.IsZero():
			own = v1.PodQOSBestEffort
		}
		class = together(class, own)
	}
	return class
}

// together returns the class of two parts; "" is no part.
func together(a, b v1.PodQOSClass) v1.PodQOSClass {
	if a == "" || a == b {
		return b
	}
	return v1.PodQOSBurstable
}
