package source

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/podtest"
)

// TestClaimsBringByGate: without the gate nothing on the node sees what claims bring.
func TestClaimsBringByGate(t *testing.T) {
	for _, on := range []bool{true, false} {
		pod := podtest.New("p", podtest.Containers("a"), podtest.Brings([]string{"a"}, "cpu=1", "", ""))
		out := NewScreen(func(string) bool { return on }, func(complaint.Problem) {}).Pass([]*v1.Pod{pod})
		if len(out) != 1 || (len(out[0].Status.NodeAllocatableResourceClaimStatuses) > 0) != on {
			t.Errorf("gate %v: %v", on, out)
		}
	}
}
