package watchv1

// The headers of List and GetAllocatableResources that name the state they tell.
const (
	InstanceHeader   = "numalet-instance"
	GenerationHeader = "numalet-generation"
)
