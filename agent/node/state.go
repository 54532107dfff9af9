package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// State says what keeps the node from taking pods. The node's conditions and admission are made of the
// same State, also on a standalone node.
type State struct {
	// NotReady lists reasons why the node is not ready; empty: it is ready.
	NotReady []string
	// Pressure lists the conditions of pressure that hold, by name: memory, disk, PIDs.
	Pressure []v1.NodeConditionType
}

// Equal reports whether both states say the same.
func (s State) Equal(o State) bool {
	return slices.Equal(s.NotReady, o.NotReady) && slices.Equal(s.Pressure, o.Pressure)
}
