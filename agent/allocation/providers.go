package allocation

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// provider hands out one kind of what containers have for themselves. Its value belongs to one
// draft and knows what the containers placed so far leave over.
type provider interface {
	// ask is what the container asks for; nil stands for the pod as a whole, at its peak. The error
	// is an *Unready, and then too there is a demand.
	ask(c *v1.Container) (demand, error)
	// take accounts for what a container was given in the draft's plan. Init containers will have
	// ended when the next one starts, which can be given the same again.
	take(container string, kind podspec.Kind)
}

// demand is what a container, or the pod, asks of one provider. It may be for nothing.
type demand interface {
	// lacks names what held does not have of it.
	lacks(held Container) []string
	// keep adds to kept what stays of what the container has, and reports whether that is all that
	// is asked for, and nothing else.
	keep(kind podspec.Kind, own Container, kept *Container) bool
	// offer says from which nodes it can be met.
	offer(k fixed) offer
	// choose adds to got what the container is given under the hint, unless got has it already.
	// Containers that start later keep what later says.
	choose(later []Container, hint topology.Hint, got *Container) error
}

// fixed is what stays as it is while something is placed.
type fixed struct {
	own   []Container // of those who ask: what they are offered has to go with it
	later []Container // of containers that start later: nobody else is offered it
}

// offer is how a demand can be met.
type offer struct {
	hints []topology.ResourceHints
	// supplies say more on machines for which hints leave sets of nodes out.
	supplies []topology.Supply
}

// offerOf has the same hints for all the resources.
func offerOf[S ~string](s topology.Supply, hints []topology.Hint, resources ...S) offer {
	out := offer{supplies: []topology.Supply{s}}
	for _, name := range resources {
		out.hints = append(out.hints, topology.ResourceHints{Resource: string(name), Hints: hints})
	}
	return out
}

// explainer is a demand that may know why it cannot be met, on whatever nodes.
type explainer interface {
	refusal(later []Container) error
}

// checker is a provider with a condition for the plan as a whole.
type checker interface {
	check() error
}

// confiner is a provider that can confine an init container to what those lend it that last.
type confiner interface {
	// confine has all be taken in the view but what is lent, if that is enough for the container.
	confine(v *View, c *v1.Container, lent []Container)
}

// lender is a provider of which an init container takes over what it has been lent.
type lender interface {
	// lend has the container that is placed next take over what is lent.
	lend(lent []Container)
	// beside changes what the init container at that place got to what it holds beside those that
	// last.
	beside(at int, got *Container, last []Container) error
	// handOn ends a plan in which init containers were placed last.
	handOn()
}

// able lists the providers that have an ability.
func able[T any](all []provider) (out []T) {
	for _, p := range all {
		if one, ok := p.(T); ok {
			out = append(out, one)
		}
	}
	return out
}
