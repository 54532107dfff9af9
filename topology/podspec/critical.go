package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// AnnotationSource is the annotation with the name of the source that a pod comes from; APISource
// is that of the API server, the others are those of static pods.
const (
	AnnotationSource = "kubernetes.io/config.source"
	APISource        = "api"
)

// criticalPriority is the lowest priority of pods that the cluster or the node cannot do without.
const criticalPriority int32 = 2_000_000_000

// IsStatic reports whether the pod is from a file or a URL.
func IsStatic(pod *v1.Pod) bool {
	from, known := pod.Annotations[AnnotationSource]
	return known && from != APISource
}

// IsCritical reports whether the pod comes before others: it is static, or critical to the node or
// the cluster.
func IsCritical(pod *v1.Pod) bool {
	return IsStatic(pod) || ptr.Deref(pod.Spec.Priority, 0) >= criticalPriority
}

// Rank is what says which pods make way for which on a node that is full.
type Rank struct {
	Critical bool
	// Priority is only known of pods that have one.
	Priority    int32
	Prioritized bool
	QoS         v1.PodQOSClass
}

// RankOf is the pod's.
func RankOf(pod *v1.Pod) Rank {
	return Rank{
		Critical: IsCritical(pod), Priority: ptr.Deref(pod.Spec.Priority, 0),
		Prioritized: pod.Spec.Priority != nil, QoS: QOSClass(pod),
	}
}

// Preempts reports whether a critical pod of that rank may take the place of another one: any that is
// not critical, and a critical one of less priority.
func (r Rank) Preempts(other Rank) bool {
	if !r.Critical || !other.Critical {
		return r.Critical
	}
	return r.Prioritized && other.Prioritized && r.Priority > other.Priority
}
