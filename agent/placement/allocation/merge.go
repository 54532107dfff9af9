package allocation

import (
	"slices"
	"strings"

	"github.com/numalet/numalet/topology"
)

// merge merges the offers for all demands under the policy. container is "" for the whole pod.
func (d *draft) merge(container string, demands []demand, k fixed) (topology.Hint, error) {
	offers := make([]offer, len(demands))
	for i, one := range demands {
		offers[i] = one.offer(k)
	}
	merged := d.mergeOffers(offers)
	d.plan.Decisions = append(d.plan.Decisions, Decision{
		Container: container, Offers: slices.Concat(hintsOf(offers)...), Merged: merged,
	})
	if merged.Admit {
		return merged.Hint, nil
	}
	for _, one := range demands {
		if e, ok := one.(explainer); ok {
			if err := e.refusal(k.later); err != nil {
				return merged.Hint, rejected(err)
			}
		}
	}
	message := "Resources cannot be allocated with Topology locality"
	if choices := d.choices(container); len(choices) > 0 {
		message += ": " + strings.Join(choices[:min(len(choices), 4)], ", ") +
			"; choose devices with which the pod has a place that the policy allows"
	}
	if places := (claimProvider{d}).places(container); len(places) > 0 {
		message += ": " + strings.Join(places[:min(len(places), 4)], ", ")
	}
	for _, one := range demands {
		if asked, ok := one.(deviceDemand); ok {
			message += asked.claimed()
		}
	}
	return merged.Hint, &Rejection{Reason: ReasonTopology, Message: message}
}

func hintsOf(offers []offer) [][]topology.ResourceHints {
	out := make([][]topology.ResourceHints, len(offers))
	for i, o := range offers {
		out[i] = o.hints
	}
	return out
}

// mergeOffers merges hints. On a machine with many nodes each provider leaves out some sets of
// nodes, and not the same ones. If the result is not preferred by all, mergeOffers adds a set that
// all of them could have offered, and merges again.
func (d *draft) mergeOffers(offers []offer) topology.Result {
	nodes, all := d.view.Machine.NodeSet(), hintsOf(offers)
	var supplies []topology.Supply
	for _, o := range offers {
		supplies = append(supplies, o.supplies...)
	}
	options := d.view.Options
	if order := d.view.Strategy.Order(nodes, supplies); order != nil {
		options = options.Ordered(order)
	}
	merged := options.Merge(d.view.Policy, nodes, all)
	if nodes.Len() <= topology.EverySet || merged.Hint.Preferred ||
		slices.ContainsFunc(slices.Concat(all...), isImpossible) {
		return merged
	}
	set := topology.Common(nodes, supplies)
	if set.IsEmpty() {
		return merged
	}
	for _, o := range offers {
		for i, r := range o.hints {
			if r.Hints != nil {
				o.hints[i].Hints = append(slices.Clone(r.Hints),
					topology.Hint{Nodes: set, Preferred: true})
			}
		}
	}
	return options.Merge(d.view.Policy, nodes, all)
}

func isImpossible(r topology.ResourceHints) bool { return r.Hints != nil && len(r.Hints) == 0 }
