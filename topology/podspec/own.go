package podspec

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/topology"
)

// Own says who in a pod may have exclusive CPUs and memory.
type Own int

const (
	// OwnNothing: the pod is not Guaranteed, or it has pod-level resources (KEP-2837) and the node does not
	// manage these.
	OwnNothing Own = iota
	// OwnContainers: each container gets its own.
	OwnContainers
	// OwnPool: the pod gets a pool, which its containers divide (KEP-5526).
	OwnPool
)

// OwnOf returns who in the pod may have exclusive CPUs and memory under the rules that hold for the pod.
func OwnOf(pod *v1.Pod, rules topology.Rules) Own {
	podLevel := resourcehelper.IsPodLevelResourcesSet(pod)
	switch {
	case podLevel && !rules.PodLevel, QOSClass(pod) != v1.PodQOSGuaranteed:
		return OwnNothing
	case podLevel && rules.Scope == topology.PodScope && rules.Policy != topology.None:
		return OwnPool
	}
	return OwnContainers
}

// QualifiesAlone reports whether the container may have exclusive CPUs and memory, given that its pod is
// Guaranteed: with pod-level resources it has to be so in itself.
func QualifiesAlone(pod *v1.Pod, c *v1.Container) bool {
	return !resourcehelper.IsPodLevelResourcesSet(pod) || qosOf(c.Resources) == v1.PodQOSGuaranteed
}
