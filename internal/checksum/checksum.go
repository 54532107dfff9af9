// Package checksum makes the kubelet's checksums: those in its checkpoints, and of container specs.
package checksum

import (
	"hash/fnv"
	"io"

	"k8s.io/utils/dump"
)

// Of is the FNV-32a checksum of Go's rendering of the value, with the names of its types and
// fields.
func Of(value any) uint64 { return OfText(dump.ForHash(value)) }

// OfText is the checksum of a rendering.
func OfText(rendering string) uint64 {
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, rendering) // a hash never fails
	return uint64(sum.Sum32())
}
