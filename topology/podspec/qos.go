package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// QOSClass returns the pod's quality of service class as its spec defines it
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/, pod level: KEP-2837). It ignores
// the pod's status, and goes through all containers at each call.
//
// CPU and memory decide; zero quantities count as not set. Pod-level resources, if given, speak for
// all containers. Init containers count like the others, ephemeral ones never do.
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	var sum qosSum
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		sum.add(*pod.Spec.Resources)
		return sum.class()
	}
	for c := range Containers(pod) {
		sum.add(c.Resources)
	}
	return sum.class()
}

// MayOwn reports whether containers of the pod may get exclusive CPUs and memory: those of
// Guaranteed pods may, except with pod-level resources (KEP-2837).
func MayOwn(pod *v1.Pod) bool {
	return !resourcehelper.IsPodLevelResourcesSet(pod) && QOSClass(pod) == v1.PodQOSGuaranteed
}

// qosSum adds up the requests and the limits, each of CPU and memory in this order.
type qosSum struct {
	requests, limits [2]resource.Quantity
	unlimited        bool // some part lacks a CPU or a memory limit
}

func (s *qosSum) add(r v1.ResourceRequirements) {
	for i, name := range [2]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if q := r.Requests[name]; q.Sign() > 0 {
			s.requests[i].Add(q)
		}
		if q := r.Limits[name]; q.Sign() > 0 {
			s.limits[i].Add(q)
		} else {
			s.unlimited = true
		}
	}
}

func (s *qosSum) class() v1.PodQOSClass {
	anything, equal := false, true
	for i := range s.requests {
		anything = anything || s.requests[i].Sign() > 0 || s.limits[i].Sign() > 0
		equal = equal && s.requests[i].Cmp(s.limits[i]) == 0
	}
	switch {
	case !anything:
		return v1.PodQOSBestEffort
	case equal && !s.unlimited:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}
