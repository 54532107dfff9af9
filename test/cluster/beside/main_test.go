// Package beside gives the same pods to numalet and to the stock kubelet, each as a node of one
// control plane with a containerd of its own, and compares what clients see: statuses, events, the
// node, metrics and statistics. What differs is in a table, with the reason, or it is a mistake.
package beside

import (
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
