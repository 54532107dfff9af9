package decide

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Demand is a pod and what its spec says of it, read once.
type Demand struct {
	Pod      *v1.Pod
	Static   bool
	Requests v1.ResourceList
	Shares   bool // some of its containers share CPUs
	Ports    []podspec.HostPort
	Rank     podspec.Rank
	// Least counts, for "cpu" and each device resource, the exclusive CPUs and devices that the pod
	// holds at once at least.
	Least     map[string]int
	HasClaims bool // it uses resource claims
	// Devices names the resources that are handed out as devices.
	Devices []string
	// Chosen are devices that were chosen for the pod; ChosenErr: they were so that it cannot be followed.
	Chosen    podspec.Chosen
	ChosenErr error
	// Rules are the node's, or those that the pod asks for; RulesErr: it may not.
	Rules    topology.Rules
	RulesErr error
}

// DemandOf returns the pod's demand on a node with this static CPU policy (nil: it has none) and these rules.
func DemandOf(pod *v1.Pod, node *cpumanager.Static, rules topology.Rules) Demand {
	d := Demand{
		Pod:   pod,
		Least: podspec.AllDevices(pod), Ports: podspec.HostPorts(pod),
		Rank: podspec.RankOf(pod), Static: podspec.IsStatic(pod), HasClaims: claim.Any(pod),
		Devices: podspec.DeviceResources(pod),
	}
	d.Rules, d.RulesErr = podspec.Rules(pod, rules)
	d.Requests, d.Shares = allocation.Requests(node, pod, d.Rules), cpumanager.Shares(pod, d.Rules)
	exclusive := cpumanager.ExclusiveOf(pod, d.Rules)
	d.Least[string(v1.ResourceCPU)] = podspec.Peak(pod, func(c *v1.Container) int {
		if len(c.Resources.Claims) > 0 {
			return 0 // its claims may have the CPUs
		}
		return exclusive(c)
	})
	d.Chosen, d.ChosenErr = podspec.ChosenDevices(pod, rules.Choosers)
	return d
}

// Wants reports whether the pod requests any of these resources.
func (d Demand) Wants(resources sets.Set[string]) bool {
	if len(resources) == 0 {
		return false
	}
	for name := range d.Least {
		if resources.Has(name) {
			return true
		}
	}
	return false
}

// FirstWith names the first container that requests devices of the resource; "": none does.
func (d Demand) FirstWith(resource string) string {
	for c := range podspec.Containers(d.Pod) {
		for _, r := range podspec.DeviceRequests(d.Pod, c) {
			if r.Resource == resource {
				return c.Name
			}
		}
	}
	return ""
}
