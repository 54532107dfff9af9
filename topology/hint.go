package topology

// Hint is one placement that a provider can make for one resource of one container (or pod, in
// pod scope): the request can be met from the resources of Nodes, and from no fewer of them.
// Source: KEP-693, TopologyHint.
type Hint struct {
	// Nodes that together hold the request. Any says that every node will do.
	Nodes NodeSet
	Any   bool
	// Preferred: no placement on fewer nodes exists on this machine, were it empty.
	Preferred bool
}

// ResourceHints is what a provider offers for one resource. Hints nil: no preference (any node,
// preferred). Hints empty but not nil: no placement exists (any node, not preferred).
type ResourceHints struct {
	// Resource is the resource name: "cpu", "memory", "example.com/gpu".
	Resource string
	Hints    []Hint
}
