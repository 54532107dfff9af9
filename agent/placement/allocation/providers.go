package allocation

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// provider hands out one kind for one draft. It keeps account of what is left after the containers
// placed so far.
type provider interface {
	// ask returns what the container requests; nil: the whole pod, at its peak. The error is an
	// *Unready, or a *Rejection of a request that no place can meet; there is a demand even then.
	ask(c *v1.Container) (demand, error)
	// take accounts for what the draft's plan gives a container. An init container ends before the
	// next one starts, so that later containers can reuse what it has.
	take(container string, kind podspec.Kind)
}

// demand lists what a container, or the pod, requests from one provider. It may be empty.
type demand interface {
	// lacks names what held does not have of the demand.
	lacks(held Container) []string
	// keep adds to kept what the container keeps of own, and reports whether that is exactly what it
	// requests.
	keep(kind podspec.Kind, own Container, kept *Container) bool
	// offer returns from which nodes the demand can be met.
	offer(k fixed) offer
	// choose adds to got what the container gets under the hint, unless got already has it. It leaves
	// alone what later containers keep.
	choose(later []Container, hint topology.Hint, got *Container) error
}

// fixed has what does not change while something is placed.
type fixed struct {
	own   []Container // what the requesting containers keep: offers have to include its nodes
	later []Container // what later containers keep: it is not offered
}

// offer is how a demand can be met.
type offer struct {
	hints []topology.ResourceHints
	// supplies complete the hints on machines with many nodes, where hints leave out some sets.
	supplies []topology.Supply
}

// offerOf returns an offer with the same hints for all the resources.
func offerOf[S ~string](s topology.Supply, hints []topology.Hint, resources ...S) offer {
	out := offer{supplies: []topology.Supply{s}}
	for _, name := range resources {
		out.hints = append(out.hints, topology.ResourceHints{Resource: string(name), Hints: hints})
	}
	return out
}

// explainer is a demand that may know why no nodes can meet it.
type explainer interface {
	refusal(later []Container) error
}

// checker is a provider with a condition on the whole plan.
type checker interface {
	check() error
}

// confiner is a provider that can restrict an init container to what lasting containers lend it.
type confiner interface {
	// confine marks everything in the view as taken that is not lent, if enough is lent.
	confine(v *View, c *v1.Container, lent []Container)
}

// lender is a provider whose blocks an init container takes over from lasting containers.
type lender interface {
	// lend lets the container that is placed next take over what is lent.
	lend(lent []Container)
	// beside reduces what the init container at this index got to what it holds beside the lasting
	// containers.
	beside(at int, got *Container, last []Container) error
	// handOn completes a plan in which init containers were placed last.
	handOn()
}

// able lists the providers that implement T.
func able[T any](all []provider) (out []T) {
	for _, p := range all {
		if one, ok := p.(T); ok {
			out = append(out, one)
		}
	}
	return out
}
