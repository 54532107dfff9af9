// Package watchv1 defines the messages of a watch of the resources that pods hold on a node, and a
// copy of that state for clients.
package watchv1

// The headers of List and GetAllocatableResources that identify the state in the answer.
const (
	InstanceHeader   = "numalet-instance"
	GenerationHeader = "numalet-generation"
)
