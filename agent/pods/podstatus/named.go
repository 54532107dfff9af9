package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology/podspec"
)

// Named returns the pod of that name with its status, and if uid is not "", of that UID. If there
// are several, a pod that has not ended comes before one that has, and a pod of the API server
// before a static one, since clients see the former by that name.
func (v view) Named(namespace, name string, uid types.UID) (found *v1.Pod, ok bool) {
	for _, pod := range v.AllNamed(namespace, name) {
		if uid != "" && pod.UID != uid {
			continue
		}
		if found == nil || rank(pod) < rank(found) {
			found = pod
		}
	}
	return found, found != nil
}

func rank(pod *v1.Pod) (rank int) {
	if podspec.Ended(pod.Status.Phase) {
		rank += 2
	}
	if podspec.IsStatic(pod) {
		rank++
	}
	return rank
}

// AllNamed returns all pods of that name with their statuses.
func (v view) AllNamed(namespace, name string) []*v1.Pod {
	return slices.DeleteFunc(v.List(), func(pod *v1.Pod) bool {
		return pod.Namespace != namespace || pod.Name != name
	})
}

// Knows reports whether there is a pod of that name, whatever became of it.
func (v view) Knows(namespace, name string) bool {
	return slices.ContainsFunc(v.Specs(), func(pod *v1.Pod) bool {
		return pod.Namespace == namespace && pod.Name == name
	})
}
