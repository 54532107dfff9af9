package explain

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// A container's claims are told with their devices once it is placed, and by name before.
func TestClaims(t *testing.T) {
	c := &v1.Container{Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"},
		{Name: "nic", Request: "one"}}}}
	for want, got := range map[string]allocation.Container{
		"main: claim gpu, claim nic/one": nil,
		"main: claim gpu (has gpu-0 of gpu.example.com, gpu-1 of gpu.example.com), " +
			"claim nic/one (has no device)": allocation.Container{}.With(allocation.Claims{
			{Name: "gpu", Devices: []claim.Device{{Driver: "gpu.example.com", Name: "gpu-0"},
				{Driver: "gpu.example.com", Name: "gpu-1"}}},
			{Name: "nic", Request: "one"}}),
	} {
		r := Request{Container: "main", Kind: "regular", Claims: claimsOf(c, got)}
		if text := r.String(); text != want {
			t.Errorf("it says %q, want %q", text, want)
		}
	}
}
