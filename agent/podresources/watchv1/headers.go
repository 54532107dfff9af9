// Package watchv1 has the messages of a watch of who holds what on a node, and a copy of that state
// for clients.
package watchv1

// The headers of List and GetAllocatableResources that name the state they tell.
const (
	InstanceHeader   = "numalet-instance"
	GenerationHeader = "numalet-generation"
)
