package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
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
	requests := Requests(r.CPUs, pod, r.Rules)
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
func Requests(node *cpumanager.Static, pod *v1.Pod, rules topology.Rules) v1.ResourceList {
	asked := podspec.CPURules(pod)
	isolated := asked.Isolated && node != nil && node.Isolates()
	if node == nil || !isolated && !asked.WholeCores {
		return podspec.Requests(pod)
	}
	static := node.For(asked)
	all := static.Free(cpuset.New())
	counts := func(n int) int {
		if isolated {
			return 0
		}
		return static.Padded(all, n)
	}
	exclusive := cpumanager.ExclusiveOf(pod, rules)
	counted := pod.DeepCopy()
	for c := range podspec.Containers(counted) {
		if n := exclusive(c); n > 0 {
			c.Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(int64(counts(n)), resource.DecimalSI)
		}
	}
	if whole := counted.Spec.Resources; whole != nil {
		// What is requested of the pod as a whole includes what is exclusive.
		asked := cpumanager.PodExclusive(pod, rules)
		gets := counts(asked)
		if cpumanager.Pool(pod, rules) == 0 {
			gets = podspec.Peak(pod, func(c *v1.Container) int { return counts(exclusive(c)) })
		}
		if cpus, set := whole.Requests[v1.ResourceCPU]; set && asked != gets {
			cpus.Add(*resource.NewQuantity(int64(gets-asked), resource.DecimalSI))
			whole.Requests[v1.ResourceCPU] = cpus
		}
	}
	return podspec.Requests(counted)
}

// Amount returns the pod's peak demand: exclusive CPUs (resource "cpu" or ResourceIsolated), bytes
// of memory or huge pages, or devices.
func Amount(pod *v1.Pod, name string, rules topology.Rules) int {
	if name == string(v1.ResourceCPU) || name == ResourceIsolated {
		return cpumanager.PodExclusive(pod, rules)
	}
	if bytes, ok := memory.PodRequests(pod, rules)[v1.ResourceName(name)]; ok {
		return int(bytes)
	}
	return podspec.AllDevices(pod)[name]
}
