package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// AnnotationSource names the source of a pod; APISource is the API server, any other source means a
// static pod.
const (
	AnnotationSource = "kubernetes.io/config.source"
	APISource        = "api"
)

// AnnotationHash of a static pod and AnnotationMirror of its mirror pod are the same.
const (
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationMirror = "kubernetes.io/config.mirror"
)

// CriticalPriority is the lowest priority of pods that are critical to the cluster or node.
const CriticalPriority int32 = 2_000_000_000

// IsStatic reports whether the pod is from a file or a URL.
func IsStatic(pod *v1.Pod) bool {
	from, known := pod.Annotations[AnnotationSource]
	return known && from != APISource
}

// IsMirror reports whether a pod of the API server is a mirror pod.
func IsMirror(pod *v1.Pod) bool {
	_, is := pod.Annotations[AnnotationMirror]
	return is
}

// IsMirrorOf reports whether a pod of the API server is the mirror pod of static.
func IsMirrorOf(pod, static *v1.Pod) bool {
	hash, is := pod.Annotations[AnnotationMirror]
	return is && hash == static.Annotations[AnnotationHash]
}

// WithoutMirrors returns the pods to run, of all that the API server has for a node: those that are not mirror
// pods.
func WithoutMirrors(all []*v1.Pod) (run []*v1.Pod) {
	return slices.DeleteFunc(slices.Clone(all), IsMirror)
}

// IsCritical reports whether the pod is static, or critical to the node or cluster by its priority.
func IsCritical(pod *v1.Pod) bool {
	return IsStatic(pod) || ptr.Deref(pod.Spec.Priority, 0) >= CriticalPriority
}

// Rank decides which pods make way for which on a full node.
type Rank struct {
	Critical bool
	// Priority is only valid if Prioritized.
	Priority    int32
	Prioritized bool
	QoS         v1.PodQOSClass
}

// RankOf returns the pod's rank.
func RankOf(pod *v1.Pod) Rank {
	return Rank{
		Critical: IsCritical(pod), Priority: ptr.Deref(pod.Spec.Priority, 0),
		Prioritized: pod.Spec.Priority != nil, QoS: QOSClass(pod),
	}
}

// Preempts reports whether a pod of rank r may displace one of rank other: a critical pod displaces
// any pod that is not critical, and a critical one of lower priority.
func (r Rank) Preempts(other Rank) bool {
	if !r.Critical || !other.Critical {
		return r.Critical
	}
	return r.Prioritized && other.Prioritized && r.Priority > other.Priority
}
