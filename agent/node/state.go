package node

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// State says what keeps the node from taking pods. The node's conditions and admission are made of the
// same State, also on a standalone node.
type State struct {
	// NotReady lists reasons why the node is not ready; empty: it is ready.
	NotReady []string
	// Pressure holds the conditions that are true: memory, disk, PIDs. The watchers of these resources
	// set them; without a watcher none is true.
	Pressure map[v1.NodeConditionType]bool
}

// Equal reports whether both states say the same.
func (s State) Equal(o State) bool {
	return slices.Equal(s.NotReady, o.NotReady) && slices.Equal(s.Pressures(), o.Pressures())
}

// Pressures lists the conditions of pressure that are true, by name.
func (s State) Pressures() (out []v1.NodeConditionType) {
	for _, kind := range slices.Sorted(maps.Keys(s.Pressure)) {
		if s.Pressure[kind] {
			out = append(out, kind)
		}
	}
	return out
}
