package runtimeup

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPodCIDR: the runtime is told a range once it is known, again while that fails, and anew when
// the range is another.
func TestPodCIDR(t *testing.T) {
	var reported []string
	want, fails := "", error(nil)
	p := PodCIDR{
		Want: func() string { return want },
		Tell: func(_ context.Context, cidr string) error {
			reported = append(reported, cidr)
			return fails
		},
	}
	for i, step := range []struct {
		want     string
		fails    error
		reported []string
	}{
		{"", nil, nil},
		{"10.0.0.0/24", errors.New("away"), []string{"10.0.0.0/24"}},
		{"10.0.0.0/24", nil, []string{"10.0.0.0/24"}},
		{"10.0.0.0/24", nil, nil},
		{"", nil, nil},
		{"10.1.0.0/24,fd00::/64", nil, []string{"10.1.0.0/24,fd00::/64"}},
		{"10.2.0.0/24", status.Error(codes.Unimplemented, "no"), []string{"10.2.0.0/24"}},
		{"10.2.0.0/24", nil, nil},
	} {
		reported, want, fails = nil, step.want, step.fails
		if err := p.Look(t.Context()); err != nil || !slices.Equal(reported, step.reported) {
			t.Errorf("%d, %q: told %q, %v; want %q", i, want, reported, err, step.reported)
		}
	}
}
