package cri

import (
	"testing"

	"github.com/numalet/numalet/internal/podtest"
)

// Only containers of Burstable pods whose memory request is below their limit may swap, and only
// with LimitedSwap.
func TestSwap(t *testing.T) {
	unified := Swap{Controlled: true, Unified: true, Bytes: 4 * gi}
	limited := unified
	limited.Limited = true
	legacy := Swap{Controlled: true, Limited: true, Bytes: 4 * gi}
	critical, static := podtest.Priority(2_000_000_000), podtest.Source("file")
	tests := []struct {
		name      string
		swap      Swap
		resources string
		pod       podtest.Option
		file      string // memory.swap.max; "": not written
		together  int64  // limit of memory and swap
	}{
		{"no controller", Swap{Unified: true}, "memory=1Gi..", nil, "", 0},
		{"v1, no limit", legacy, "memory=1Gi..", nil, "", 0},
		{"v1", legacy, "memory=1Gi..2Gi", nil, "", 2 * gi},
		{"NoSwap", unified, "memory=1Gi..2Gi", nil, "0", 0},
		{"LimitedSwap", limited, "memory=1Gi..2Gi", nil, "536870912", 0},
		{"without limit", limited, "memory=2Gi..", nil, "1073741824", 0},
		{"request is limit", limited, "memory=2Gi", nil, "0", 0},
		{"no request", limited, "cpu=1..", nil, "0", 0},
		{"best effort", limited, "", nil, "0", 0},
		{"guaranteed", limited, "memory=1Gi cpu=1", nil, "0", 0},
		{"critical", limited, "memory=1Gi..", critical, "0", 0},
		{"static", limited, "memory=1Gi..", static, "0", 0},
	}
	for _, tt := range tests {
		pod := podtest.New("", podtest.Containers("c "+tt.resources), tt.pod)
		r := ContainerResources(pod, &pod.Spec.Containers[0],
			ResourceOptions{NodeMemory: 8 * gi, Swap: tt.swap}, Placement{})
		if got := r.Unified["memory.swap.max"]; got != tt.file ||
			r.MemorySwapLimitInBytes != tt.together {
			t.Errorf("%s: %q and %d, want %q and %d", tt.name, got, r.MemorySwapLimitInBytes,
				tt.file, tt.together)
		}
	}
}
