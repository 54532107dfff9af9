package topology

// Hint is one placement that a provider offers for one resource of one container (or pod, in pod
// scope): Nodes together can meet the request, and each of them may be used. Source: KEP-693,
// TopologyHint.
type Hint struct {
	// Nodes together hold the request. Any: every node will do.
	Nodes NodeSet
	Any   bool
	// Preferred: even on the empty machine no set of fewer nodes could hold the request.
	Preferred bool
}

// ResourceHints is a provider's offer for one resource. Hints nil: no preference (any node,
// preferred). Hints empty but not nil: there is no placement (any node, not preferred).
type ResourceHints struct {
	// Resource is the resource name: "cpu", "memory", "example.com/gpu".
	Resource string
	Hints    []Hint
}
