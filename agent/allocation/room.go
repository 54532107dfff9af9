package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Room is all that decides whether a pod fits: what can be assigned, and what is only counted.
type Room struct {
	View
	// Others are the requests of the pods that count beside this one.
	Others []v1.ResourceList
	// Allocatable is what all pods together may request, without devices.
	Allocatable v1.ResourceList
}

// Plan is View.Plan for a pod that fits the node's capacity as well.
func (r Room) Plan(pod *v1.Pod, advice Advice) (Plan, error) {
	plan, err := r.View.Plan(pod, advice)
	if err != nil {
		return plan, err
	}
	short := r.Shortages(pod)
	switch {
	case len(short) > 0 && plan.Ask != nil:
		plan.Pod.Containers = nil // the plan with the advice will say that it does not fit
	case len(short) > 0:
		return plan, &Rejection{Reason: short[0].Reason(), Message: short[0].Message()}
	}
	return plan, nil
}

// Shortages is what the node lacks of what is only counted. Devices are placed one by one;
// counting them again could only refuse a pod for devices that are unhealthy and held by pods that
// run.
func (r Room) Shortages(pod *v1.Pod) []node.Shortage {
	requests := podspec.Requests(pod)
	maps.DeleteFunc(requests, func(name v1.ResourceName, _ resource.Quantity) bool {
		return podspec.IsExtended(name)
	})
	return node.Fits(requests, r.Others, r.Allocatable)
}

// Amount is the most exclusive CPUs (resource "cpu"), bytes of memory or huge pages, or devices
// that the pod holds at once.
func Amount(pod *v1.Pod, name string) int {
	if name == string(v1.ResourceCPU) {
		return cpumanager.PodExclusive(pod)
	}
	if bytes, ok := memory.PodRequests(pod)[v1.ResourceName(name)]; ok {
		return int(bytes)
	}
	return podspec.Devices(pod, name)
}
