package allocation

import (
	"slices"

	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// everySet is the number of nodes up to which providers offer every set of nodes.
const everySet = 8

// mergeAll merges what the providers offer. On a machine of many nodes each of them leaves sets
// out, not the same ones: if nothing comes of it that all prefer, one set is looked for that they
// would all have offered.
func (w *work) mergeAll(req request, providers [][]topology.ResourceHints) topology.Result {
	nodes := w.view.Machine.NodeSet()
	merged := w.view.Options.Merge(w.view.Policy, nodes, providers)
	if nodes.Len() <= everySet || merged.Hint.Preferred || w.view.Policy == topology.None ||
		slices.ContainsFunc(slices.Concat(providers...), isImpossible) {
		return merged
	}
	set := topology.Common(nodes, w.needs(req))
	if set.IsEmpty() {
		return merged
	}
	for _, resources := range providers {
		for i, r := range resources {
			if r.Hints != nil {
				resources[i].Hints = append(slices.Clone(r.Hints),
					topology.Hint{Nodes: set, Preferred: true})
			}
		}
	}
	return w.view.Options.Merge(w.view.Policy, nodes, providers)
}

func isImpossible(r topology.ResourceHints) bool { return r.Hints != nil && len(r.Hints) == 0 }

// needs is what the request needs of sets of nodes.
func (w *work) needs(req request) []topology.Need {
	var needs []topology.Need
	for _, d := range req.devices {
		if need, ok := deviceplugin.Need(w.devicesAround(req, d)); ok {
			needs = append(needs, need)
		}
	}
	if req.cpus > 0 {
		needs = append(needs, w.view.CPUs.Need(w.freeCPUs, w.reusableFor(req), req.cpus))
	}
	if len(req.memory) > 0 {
		held, reusable, must := w.memoryFor(req)
		for _, need := range w.view.Memory.Needs(held, reusable, req.memory) {
			need.Must = need.Must.Union(must)
			needs = append(needs, need)
		}
	}
	return needs
}
