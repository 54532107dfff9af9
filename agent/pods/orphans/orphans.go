// Package orphans finds what is left of pods that the node does not know.
package orphans

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
)

// Search says where to look, and for what.
type Search struct {
	// Running returns the pods in the runtime, Assigned the recorded assignments.
	Running  func() []cri.Pod
	Assigned func() allocation.State
	// Remains list the pods that have something left elsewhere, by the kind of thing.
	Remains map[string]func() ([]types.UID, error)
	// Known reports whether a pod need not be reported. It may be wrong about a pod that has just come
	// or gone: the receiver of Found decides.
	Known func(types.UID) bool
	// Found is called for each such pod, with its namespace and name if these are known. It must not
	// block.
	Found func(*v1.Pod)
}

// Find looks once.
func (o Search) Find(context.Context) error {
	left := map[types.UID]*v1.Pod{}
	found := func(pod *v1.Pod) {
		if left[pod.UID] == nil && !o.Known(pod.UID) {
			left[pod.UID] = pod
		}
	}
	for _, p := range o.Running() {
		found(p.Reference())
	}
	for _, p := range o.Assigned().Pods {
		found(p.Reference())
	}
	var errs []error
	for what, list := range o.Remains {
		uids, err := list()
		if err != nil {
			errs = append(errs, fmt.Errorf("find %s of removed pods: %w", what, err))
		}
		for _, uid := range uids {
			found(allocation.Pod{UID: uid}.Reference())
		}
	}
	for _, pod := range left {
		o.Found(pod)
	}
	return errors.Join(errs...)
}
