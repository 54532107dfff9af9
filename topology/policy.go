package topology

import (
	"fmt"
	"strings"
)

// Policy says how far the resources of a container must agree on NUMA nodes: topologyManagerPolicy
// of KubeletConfiguration.
type Policy string

const (
	None           Policy = "none"
	BestEffort     Policy = "best-effort"
	Restricted     Policy = "restricted"
	SingleNUMANode Policy = "single-numa-node"
)

// ParsePolicy reads a policy's name. Empty input is None, the kubelet's default.
func ParsePolicy(s string) (Policy, error) {
	return parseName(s, "topology manager policy", None, BestEffort, Restricted, SingleNUMANode)
}

// parseName finds s among names. Empty input gives the first.
func parseName[T ~string](s, what string, names ...T) (T, error) {
	if s == "" {
		return names[0], nil
	}
	known := make([]string, len(names))
	for i, name := range names {
		if string(name) == s {
			return name, nil
		}
		known[i] = string(name)
	}
	return "", fmt.Errorf("unknown %s %q: use one of %s", what, s, strings.Join(known, ", "))
}
