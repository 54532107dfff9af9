package rig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/agent/placement/manifest"
)

// PodResources says what a pod asks for as a whole (KEP-2837), in the forms of a container's.
type PodResources struct {
	Limits   map[string]Text `json:"limits,omitempty"`
	Requests map[string]Text `json:"requests,omitempty"`
}

// whole adds what the pod asks for as a whole; its containers have what they ask for.
func (s *Site) whole(pod *v1.Pod, spec *PodResources) error {
	if spec == nil {
		return nil
	}
	r, err := s.requirements(spec.Limits, spec.Requests)
	if err != nil {
		return err
	}
	pod.Spec.Resources = &r
	return completeWhole(pod)
}

// completeWhole completes and checks what the pod asks for as a whole, as an API server does.
func completeWhole(pod *v1.Pod) error {
	r := pod.Spec.Resources
	switch {
	case r == nil:
		return nil
	case len(r.Claims) > 0:
		return errors.New("claims: only containers use claims")
	case len(r.Limits)+len(r.Requests) == 0:
		pod.Spec.Resources = nil
		return nil
	}
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !resourcehelper.IsSupportedPodLevelResource(name) {
				return fmt.Errorf("%s: a pod as a whole asks for cpu, memory and huge pages only; "+
					"write it to a container", name)
			}
		}
	}
	if err := checkLimits(*r); err != nil {
		return err
	}
	manifest.DefaultPodResources(pod, true)
	return checkWhole(pod)
}

// checkWhole refuses a pod that asks for less as a whole than its containers do.
func checkWhole(pod *v1.Pod) error {
	r, sum := pod.Spec.Resources, containersRequest(pod)
	for _, of := range []struct {
		what string
		list v1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		for _, name := range slices.Sorted(maps.Keys(of.list)) {
			if whole, parts := of.list[name], sum[name]; parts.Cmp(whole) > 0 {
				return fmt.Errorf("%s: %s: %s is less than its containers request together, %s", of.what, name,
					whole.String(), parts.String())
			}
		}
	}
	for i, c := range pod.Spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			if whole, part := r.Limits[name], c.Resources.Limits[name]; part.Cmp(whole) > 0 {
				return fmt.Errorf("limits: %s: %s is less than the limit of containers[%d], %s", name,
					whole.String(), i, part.String())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		if request, limit := r.Requests[name], r.Limits[name]; request.Cmp(limit) != 0 && isPages(name) {
			return fmt.Errorf("%s: huge pages cannot be overcommitted, so that the limit, %s, is the request, %s",
				name, limit.String(), request.String())
		}
	}
	return nil
}

// containersRequest returns what the pod's containers request together.
func containersRequest(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
}

func isPages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
