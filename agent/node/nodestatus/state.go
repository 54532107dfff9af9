package nodestatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// State says what keeps the node from taking pods. The node's conditions and admission are made of the
// same State, also on a standalone node.
type State struct {
	// NotReady lists what of the runtime is not ready.
	NotReady []string
	// Pressure lists the conditions of pressure that hold, by name: memory, disk, PIDs.
	Pressure []v1.NodeConditionType
	// ShuttingDown: the machine goes down.
	ShuttingDown bool
}

// Unready lists, in the kubelet's words, why the node is not ready; empty: it is ready.
func (s State) Unready() []string {
	if !s.ShuttingDown {
		return s.NotReady
	}
	return append(slices.Clip(s.NotReady), "node is shutting down")
}

// Equal reports whether both states say the same.
func (s State) Equal(o State) bool {
	return slices.Equal(s.NotReady, o.NotReady) && slices.Equal(s.Pressure, o.Pressure) &&
		s.ShuttingDown == o.ShuttingDown
}
