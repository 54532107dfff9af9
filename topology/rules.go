package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Rules say how pods are placed.
type Rules struct {
	Policy   Policy
	Scope    Scope
	Strategy Strategy
	CPURules
	// Choices are the policies that a pod may ask for in place of Policy.
	Choices []Policy
}

// CPURules say what a pod wants of the CPUs that its containers have for themselves.
type CPURules struct {
	// Isolated: they are CPUs that the node keeps for pods that ask for them.
	Isolated bool
	// WholeCores: they are whole cores. A number that is none is padded with CPUs that lie idle.
	WholeCores bool
}

// Asked is what one pod asks for in place of the rules; what is empty is up to them.
type Asked struct {
	Policy   Policy
	Scope    Scope
	Strategy Strategy
	CPURules
}

// For is the rules for a pod that asks for something else. The error says what it may not choose;
// the rules are then as they were.
func (r Rules) For(a Asked) (Rules, error) {
	if a.Policy != "" && a.Policy != r.Policy && !slices.Contains(r.Choices, a.Policy) {
		return r, fmt.Errorf("the topology manager policy %q may not be chosen on this node, "+
			"whose policy is %q; a pod may choose one of %q", a.Policy, r.Policy, r.Choices)
	}
	r.Policy = cmp.Or(a.Policy, r.Policy)
	r.Scope = cmp.Or(a.Scope, r.Scope)
	r.Strategy = cmp.Or(a.Strategy, r.Strategy)
	r.Isolated = r.Isolated || a.Isolated
	r.WholeCores = r.WholeCores || a.WholeCores
	return r, nil
}
