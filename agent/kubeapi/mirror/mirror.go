// Package mirror keeps mirror pods: for each static pod of the node one pod in the API server,
// which shows it there and which nobody runs.
//
// A mirror pod has the static pod's namespace and name, belongs to the Node, and says in the
// annotation kubernetes.io/config.mirror which static pod it is of: that one's hash. It is created
// when it is missing, taken away when it is of another static pod or is being deleted, and gone
// with its static pod. Of two static pods of one name, one of which takes the other's place, it is that
// of the older one until that is gone.
package mirror

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/source"
)

// Is reports whether a pod of the API server's is a mirror pod.
func Is(pod *v1.Pod) bool {
	_, is := pod.Annotations[source.AnnotationMirror]
	return is
}

// IsOf reports whether a pod of the API server's is the mirror pod of a static one.
func IsOf(pod, static *v1.Pod) bool {
	hash, is := pod.Annotations[source.AnnotationMirror]
	return is && hash == static.Annotations[source.AnnotationHash]
}

// HeldBack reports whether a pod was deleted for good and waits only for those whose finalizers it
// has. Without any it is there because the API server was interrupted between marking and removing
// it, which has to be asked for again.
func HeldBack(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 &&
		ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
}

// Split returns the pods that are to run, of all that the API server has for the node: those that
// are no mirror pods.
func Split(all []*v1.Pod) (run []*v1.Pod) { return slices.DeleteFunc(slices.Clone(all), Is) }

// of is the mirror pod of a static pod, to be created.
func of(static *v1.Pod, node metav1.OwnerReference) *v1.Pod {
	m := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: static.Namespace, Name: static.Name, Labels: static.Labels,
			Annotations: maps.Clone(static.Annotations), Finalizers: static.Finalizers,
			OwnerReferences: []metav1.OwnerReference{node},
		},
		Spec: static.Spec,
	}
	delete(m.Annotations, source.AnnotationManifest)
	m.Annotations[source.AnnotationMirror] = static.Annotations[source.AnnotationHash]
	return m
}
