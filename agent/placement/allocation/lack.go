package allocation

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Needs reports whether anything has to be assigned to the pod: devices, or exclusive CPUs and
// memory if the view's policies assign them.
func (v View) Needs(pod *v1.Pod) bool {
	v.Own = Pod{}
	return slices.ContainsFunc(newDraft(v, pod, nil).containers, func(a claimant) bool {
		return len(a.lacks(Container{})) > 0
	})
}

// Lacks names what containers request and Own does not have. It leaves out init containers that are
// no sidecars, as they may have finished.
func (v View) Lacks(pod *v1.Pod) (out []string) {
	for _, a := range newDraft(v, pod, nil).containers {
		if a.kind != podspec.Init {
			out = append(out, a.lacks(v.Own.Containers[a.Name])...)
		}
	}
	return out
}

// lacks names what held does not have of the demands. Devices, which are a container's first demand, come
// last; a pod as a whole has none.
func (a claimant) lacks(held Container) (out []string) {
	first := 1
	if a.Name == WholePod {
		first = 0
	}
	for i := range a.demands {
		out = append(out, a.demands[(i+first)%len(a.demands)].lacks(held)...)
	}
	return out
}

// WhollyExclusive reports whether all sidecars and regular containers have exclusive CPUs. Other
// init containers do not count: they end before, and have a quota of their own.
func (p Pod) WhollyExclusive(pod *v1.Pod) bool {
	for c, kind := range podspec.Containers(pod) {
		if kind != podspec.Init && (p.Containers[c.Name].CPUs().IsEmpty() || p.SharesCPUs(pod, c)) {
			return false
		}
	}
	return true
}
