// Package cluster_test drives the built binary as a node of a real control plane, with kubectl as
// the client.
package cluster_test

import (
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
)

func TestMain(m *testing.M) {
	csidriver.Main() // this program is also the process of CSI drivers
	rig.Main(m)
}
