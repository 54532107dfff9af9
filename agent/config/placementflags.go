package config

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/topology"
)

// Placement says what pods may ask of theirs, and which of equally good ones is taken.
type Placement struct {
	// Strategy is a NUMA allocation strategy.
	Strategy string
	// Policies are the topology manager policies that a pod may choose; nil: the node's own and the
	// stricter ones.
	Policies []string
}

const strategyFlag, podPoliciesFlag = "numa-allocation", "pod-topology-policies"

func (p *Placement) names() []string { return []string{strategyFlag, podPoliciesFlag} }

func (p *Placement) add(fs *pflag.FlagSet) {
	fs.StringVar(&p.Strategy, strategyFlag, string(topology.LowestNodes),
		"which of equally good NUMA nodes a pod gets: lowest (those with the lowest ids, as the "+
			"kubelet), packed (with the least left) or spread (with the most left)")
	fs.StringSliceVar(&p.Policies, podPoliciesFlag, nil,
		"topology manager policies that a pod may choose by an annotation, with commas; without "+
			"the flag the node's own and the stricter ones")
}

// check wants the flags to have values that can be used.
func (p *Placement) check(to *problems) {
	if _, err := topology.ParseStrategy(p.Strategy); err != nil {
		to.invalid("--"+strategyFlag, p.Strategy, "%v", err)
	}
	for _, name := range p.Policies {
		if _, err := topology.ParsePolicy(name); err != nil || name == "" {
			to.choose("--"+podPoliciesFlag, name, string(topology.None),
				string(topology.BestEffort), string(topology.Restricted),
				string(topology.SingleNUMANode))
		}
	}
}

// Rules are how pods are placed, by the topology manager's settings and the flags for placement.
func (c *Config) Rules() (r topology.Rules, err error) {
	if r.Policy, err = topology.ParsePolicy(c.Kubelet.TopologyManagerPolicy); err != nil {
		return r, err
	}
	if r.Scope, err = topology.ParseScope(c.Kubelet.TopologyManagerScope); err != nil {
		return r, err
	}
	if r.Strategy, err = topology.ParseStrategy(c.Placement.Strategy); err != nil {
		return r, err
	}
	if c.Placement.Policies == nil {
		r.Choices = r.Policy.Strict()
	}
	for _, name := range slices.Sorted(slices.Values(c.Placement.Policies)) {
		r.Choices = append(r.Choices, topology.Policy(name))
	}
	return r, nil
}
