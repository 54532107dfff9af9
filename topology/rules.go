package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Rules say how to place pods.
type Rules struct {
	Policy   Policy
	Scope    Scope
	Strategy Strategy
	CPURules
	// PodLevel: containers of pods with pod-level resources may have CPUs and memory of their own, or a
	// pool of their pod's (the gate PodLevelResourceManagers, KEP-5526).
	PodLevel bool
	// Choices are the policies that a pod may request instead of Policy.
	Choices []Policy
	// Choosers are whose pods' devices are chosen by annotations.
	Choosers Choosers
	// DevicesByID: devices are chosen without regard to how close they are to each other, as the kubelet
	// does. Only comparisons want that.
	DevicesByID bool
}

// Choosers are schedulers that choose devices for the pods that they place.
type Choosers []Chooser

// Chooser is a scheduler, as pods name theirs, in a namespace; "": in any.
type Chooser struct{ Namespace, Scheduler string }

// ParseChooser reads SCHEDULER or NAMESPACE/SCHEDULER.
func ParseChooser(text string) (c Chooser, err error) {
	namespace, scheduler, within := strings.Cut(text, "/")
	if !within {
		namespace, scheduler = "", text
	}
	if scheduler == "" || within && namespace == "" || strings.ContainsAny(scheduler, "/ \t") {
		return c, errors.New("write SCHEDULER or NAMESPACE/SCHEDULER, with the name that pods have " +
			"in spec.schedulerName")
	}
	return Chooser{Namespace: namespace, Scheduler: scheduler}, nil
}

// May reports whether the devices of a pod of that namespace and scheduler may be chosen.
func (c Choosers) May(namespace, scheduler string) bool {
	return slices.ContainsFunc(c, func(one Chooser) bool {
		return one.Scheduler == scheduler && (one.Namespace == "" || one.Namespace == namespace)
	})
}

// CPURules say what a pod demands of its containers' exclusive CPUs.
type CPURules struct {
	// Isolated: they are CPUs that the node reserves for pods that ask for them.
	Isolated bool
	// WholeCores: they are whole cores. Other numbers are padded with CPUs that stay idle.
	WholeCores bool
}

// Asked holds what one pod requests instead of the rules; empty fields leave the rule.
type Asked struct {
	Policy   Policy
	Scope    Scope
	Strategy Strategy
	CPURules
}

// For returns the rules for a pod with requests. The error says what it may not choose; the rules
// are then unchanged.
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
