package allocation

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Needs reports whether the pod asks for anything that has to be assigned: devices, or CPUs and
// memory of its own where the view has a policy that gives these out.
func (v View) Needs(pod *v1.Pod) bool {
	v.Own = Pod{}
	return slices.ContainsFunc(newDraft(v, pod, nil).containers, func(a claimant) bool {
		return len(a.lacks(Container{})) > 0
	})
}

// Lacks names what containers of the pod request for as long as it runs and Own does not have:
// devices, and CPUs and memory of their own where the view has a policy that gives these out. Init
// containers that give back what they had are left out: they may have finished.
func (v View) Lacks(pod *v1.Pod) (out []string) {
	for _, a := range newDraft(v, pod, nil).containers {
		if a.kind != podspec.Init {
			out = append(out, a.lacks(v.Own.Containers[a.Name])...)
		}
	}
	return out
}

// lacks names what held does not have of the demands: the node's own before the plugins' devices,
// which are the first demand.
func (a claimant) lacks(held Container) (out []string) {
	for i := range a.demands {
		out = append(out, a.demands[(i+1)%len(a.demands)].lacks(held)...)
	}
	return out
}

// WhollyExclusive reports whether all that runs for as long as the pod has CPUs of its own:
// sidecars and regular containers. Other init containers are gone by then, and have a quota of
// their own.
func (p Pod) WhollyExclusive(pod *v1.Pod) bool {
	for c, kind := range podspec.Containers(pod) {
		if kind != podspec.Init && p.Containers[c.Name].CPUs().IsEmpty() {
			return false
		}
	}
	return true
}
