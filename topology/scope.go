package topology

// Scope says what gets one placement: topologyManagerScope of KubeletConfiguration.
type Scope string

const (
	// ContainerScope places each container on its own.
	ContainerScope Scope = "container"
	// PodScope places all containers of a pod on the same nodes.
	PodScope Scope = "pod"
)

// ParseScope reads a scope's name. Empty input is ContainerScope, the kubelet's default.
func ParseScope(s string) (Scope, error) {
	return parseName(s, "topology manager scope", ContainerScope, PodScope)
}
