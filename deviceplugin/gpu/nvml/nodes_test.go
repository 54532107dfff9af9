//go:build cgo

package nvml

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/gpu/mock"
)

// If the driver and the PCI device name different NUMA nodes, a warning says so and the PCI
// device's counts.
func TestNodesThatDisagree(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	l.near = map[string]int{mock.UUID(5): 0}
	session := l.open(t)
	defer session.Close()
	got, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range got.GPUs {
		want := ""
		if i == 5 {
			want = "on NUMA node 1, NVML says 0; node 1 is used"
		}
		if !strings.Contains(g.NodeDoubt, want) || want == "" && g.NodeDoubt != "" ||
			g.Node != l.read(t).GPUs[i].Node {
			t.Errorf("GPU %d is on node %d: %q", i, g.Node, g.NodeDoubt)
		}
	}
}
