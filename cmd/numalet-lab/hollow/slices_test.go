package hollow

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/topology/topologytest"
)

// A node's devices are in slices of its machine's drivers, each with its NUMA node, at most as many
// in one as the API takes.
func TestSlices(t *testing.T) {
	m := topologytest.Fixture(t, "dgx-h100")
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	inventory, err := offer(m, nil)
	if err != nil || checkSlices(inventory) != nil {
		t.Fatal(err, checkSlices(inventory))
	}
	nodes := map[int64]int{}
	for _, s := range slicesOf(node, inventory) {
		if *s.Spec.NodeName != "n" || s.OwnerReferences[0].UID != "u" || s.Spec.Pool.Name != "n" ||
			s.Spec.Pool.ResourceSliceCount != 1 {
			t.Errorf("%+v", s)
		}
		for _, d := range s.Spec.Devices {
			if s.Spec.Driver == "gpu.example.com" {
				nodes[*d.Attributes["resource.kubernetes.io/numaNode"].IntValue]++
			}
		}
	}
	if len(nodes) != 2 || nodes[0] != 4 || nodes[1] != 4 {
		t.Errorf("GPUs by NUMA node: %v", nodes)
	}
	inventory, err = offer(m, []Invented{{"example.com/gpu", 300}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range slicesOf(node, inventory) {
		if s.Spec.Pool.ResourceSliceCount != 3 || len(s.Spec.Devices) > resourcev1.ResourceSliceMaxDevices {
			t.Errorf("%s: %d of %d slices", s.Name, len(s.Spec.Devices), s.Spec.Pool.ResourceSliceCount)
		}
		for _, d := range s.Spec.Devices {
			seen[d.Name] = true
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d devices", len(seen))
	}
}

// What the API would refuse is refused at the start.
func TestUnpublishable(t *testing.T) {
	m := topologytest.Fixture(t, "dgx-h100")
	inventory, err := offer(m, []Invented{{"example.com/GPU_1", 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSlices(inventory); err == nil || !strings.Contains(err.Error(), "example.com/GPU_1") {
		t.Errorf("it is taken: %v", err)
	}
}
