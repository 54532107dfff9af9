package node

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The node's object decides which addresses pods get, as soon as it has some.
func TestPodCIDR(t *testing.T) {
	dual := &v1.Node{Spec: v1.NodeSpec{PodCIDR: "10.0.0.0/24",
		PodCIDRs: []string{"10.0.0.0/24", "fd00::/64"}}}
	for _, tt := range []struct {
		own              *v1.Node
		configured, want string
	}{
		{nil, "", ""},
		{nil, "10.9.0.0/24", "10.9.0.0/24"},
		{&v1.Node{}, "10.9.0.0/24", "10.9.0.0/24"},
		{dual, "10.9.0.0/24", "10.0.0.0/24,fd00::/64"},
		{dual, "", "10.0.0.0/24,fd00::/64"},
	} {
		if got := podCIDR(tt.own, tt.configured); got != tt.want {
			t.Errorf("%v, %q: %q, want %q", tt.own, tt.configured, got, tt.want)
		}
	}
}
