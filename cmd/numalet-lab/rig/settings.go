package rig

import (
	"math"

	v1 "k8s.io/api/core/v1"
)

// settings describes the policy on a site that is already under it.
func (p Policy) settings(s *Site) Settings {
	out := Settings{
		From: p.From, TopologyManager: string(p.Rules.Policy), Scope: string(p.Rules.Scope),
		CPUManager: "static", MemoryManager: "None",
		ReservedCPUs:      s.ReservedCPUs.String(),
		IsolatedCPUs:      s.IsolatedCPUs.String(),
		AllocatableMillis: s.capacity(string(v1.ResourceCPU)),
		AllocatableBytes:  s.capacity(string(v1.ResourceMemory)),
		MaxPods:           s.capacity(string(v1.ResourcePods)),
		PodLevel:          p.Rules.PodLevel,
	}
	if p.Closest {
		out.TopologyOptions = []string{"prefer-closest-numa-nodes"}
	}
	if p.SharedCPUs {
		out.CPUManager = "none"
	} else {
		out.CPUOptions = p.CPUOptions.Names()
	}
	if p.PlacedMemory {
		out.MemoryManager = "Static"
	}
	if out.MaxPods == math.MaxInt32 {
		out.MaxPods = 0
	}
	return out
}
