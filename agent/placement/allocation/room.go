package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Room has everything that decides whether a pod fits: what can be assigned, and what is only
// counted.
type Room struct {
	View
	// Others are the requests of the other pods that count.
	Others []v1.ResourceList
	// Allocatable counts what all pods together can request, without devices.
	Allocatable v1.ResourceList
}

// Plan is View.Plan, and also checks the node's capacity.
func (r Room) Plan(pod *v1.Pod, advice Advice) (Plan, error) {
	plan, err := r.View.Plan(pod, advice)
	if err != nil {
		return plan, err
	}
	short := r.Shortages(pod)
	switch {
	case len(short) > 0 && plan.Ask != nil:
		plan.Pod.Containers = nil // the plan with the advice rejects the pod
	case len(short) > 0 && plan.Ahead != nil:
		return plan, plan.Ahead // like the kubelet, which looks for a place first
	case len(short) > 0:
		return plan, OutOf(short[0])
	}
	return plan, nil
}

// Shortages lists the counted resources that the node lacks for the pod. It leaves out devices of
// plugins, which are placed one by one: unhealthy devices of running pods would count against the pod.
func (r Room) Shortages(pod *v1.Pod) []nodestatus.Shortage {
	requests := Requests(r.CPUs, pod)
	maps.DeleteFunc(requests, func(name v1.ResourceName, _ resource.Quantity) bool {
		return podspec.IsExtended(name) && !r.Counts(string(name))
	})
	return nodestatus.Fits(requests, r.Others, r.Counted())
}

// Counted returns Allocatable with extended resources that the node's status has, and without isolated
// CPUs, which are assigned one by one.
func (r Room) Counted() v1.ResourceList {
	isolates := r.CPUs != nil && !r.CPUs.Isolated().IsEmpty()
	if !isolates && len(r.Advertised) == 0 {
		return r.Allocatable
	}
	out := maps.Clone(r.Advertised)
	if out == nil {
		out = v1.ResourceList{}
	}
	maps.Copy(out, r.Allocatable)
	if !isolates {
		return out
	}
	cpus := out[v1.ResourceCPU].DeepCopy()
	cpus.Sub(*resource.NewQuantity(int64(r.CPUs.Isolated().Size()), resource.DecimalSI))
	out[v1.ResourceCPU] = cpus
	return out
}

// Requests returns what counts as requested by the pod under this CPU policy (nil: none): isolated
// CPUs do not count, CPUs that pad others to whole cores do.
func Requests(node *cpumanager.Static, pod *v1.Pod) v1.ResourceList {
	asked := podspec.CPURules(pod)
	isolated := asked.Isolated && node != nil && node.Isolates()
	if node == nil || !isolated && !asked.WholeCores {
		return podspec.Requests(pod)
	}
	static := node.For(asked)
	all := static.Free(cpuset.New())
	exclusive := cpumanager.ExclusiveOf(pod)
	counted := pod.DeepCopy()
	for c := range podspec.Containers(counted) {
		n := exclusive(c)
		if n == 0 {
			continue
		}
		if n = static.Padded(all, n); isolated {
			n = 0
		}
		c.Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return podspec.Requests(counted)
}

// Amount returns the pod's peak demand: exclusive CPUs (resource "cpu" or ResourceIsolated), bytes
// of memory or huge pages, or devices.
func Amount(pod *v1.Pod, name string) int {
	if name == string(v1.ResourceCPU) || name == ResourceIsolated {
		return cpumanager.PodExclusive(pod)
	}
	if bytes, ok := memory.PodRequests(pod)[v1.ResourceName(name)]; ok {
		return int(bytes)
	}
	return podspec.AllDevices(pod)[name]
}
