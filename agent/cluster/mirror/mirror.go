// Package mirror keeps a mirror pod in the API server for each static pod of the node. It shows the
// static pod there, and is never run.
//
// A mirror pod has the static pod's namespace and name, is owned by the Node, and carries the
// static pod's hash in the annotation kubernetes.io/config.mirror. It is created when missing,
// deleted when it belongs to another static pod or is being deleted, and deleted with its static
// pod. A static pod that begins again under its UID, as when its manifest was deleted and written
// again at once, gets a new mirror pod: what the old one told of the earlier life is not taken back.
// If one static pod replaces another of the same name, the mirror shows the old one until that is
// gone.
package mirror

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/topology/podspec"
)

// HeldBack reports whether a pod was deleted for good and only waits for its finalizers. Without
// finalizers it exists because the API server was interrupted between marking and removing it, and
// must be asked to delete it again.
func HeldBack(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 &&
		ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
}

// of returns the mirror pod to create for a static pod.
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
	m.Annotations[podspec.AnnotationMirror] = static.Annotations[podspec.AnnotationHash]
	return m
}
