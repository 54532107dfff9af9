package cri

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// Only containers of Burstable pods whose memory request is below their limit may swap, and only
// with LimitedSwap.
func TestSwap(t *testing.T) {
	unified := Swap{Controlled: true, Unified: true, Bytes: 4 * gi}
	limited := unified
	limited.Limited = true
	legacy := Swap{Controlled: true, Limited: true, Bytes: 4 * gi}
	critical := func(p *v1.Pod) { p.Spec.Priority = ptr.To(int32(2_000_000_000)) }
	static := func(p *v1.Pod) {
		p.Annotations = map[string]string{podspec.AnnotationSource: "file"}
	}
	tests := []struct {
		name             string
		swap             Swap
		requests, limits v1.ResourceList
		change           func(*v1.Pod)
		file             string // memory.swap.max; "": not written
		together         int64  // limit of memory and swap
	}{
		{"no controller", Swap{Unified: true}, list("memory=1Gi"), nil, nil, "", 0},
		{"v1, no limit", legacy, list("memory=1Gi"), nil, nil, "", 0},
		{"v1", legacy, list("memory=1Gi"), list("memory=2Gi"), nil, "", 2 * gi},
		{"NoSwap", unified, list("memory=1Gi"), list("memory=2Gi"), nil, "0", 0},
		{"LimitedSwap", limited, list("memory=1Gi"), list("memory=2Gi"), nil,
			"536870912", 0},
		{"without limit", limited, list("memory=2Gi"), nil, nil, "1073741824", 0},
		{"request is limit", limited, list("memory=2Gi"), list("memory=2Gi"), nil, "0", 0},
		{"no request", limited, list("cpu=1"), nil, nil, "0", 0},
		{"best effort", limited, nil, nil, nil, "0", 0},
		{"guaranteed", limited, list("memory=1Gi cpu=1"),
			list("memory=1Gi cpu=1"), nil, "0", 0},
		{"critical", limited, list("memory=1Gi"), nil, critical, "0", 0},
		{"static", limited, list("memory=1Gi"), nil, static, "0", 0},
	}
	for _, tt := range tests {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c",
			Resources: v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}}}}}
		if tt.change != nil {
			tt.change(pod)
		}
		r := ContainerResources(pod, &pod.Spec.Containers[0],
			ResourceOptions{NodeMemory: 8 * gi, Swap: tt.swap}, Placement{})
		if got := r.Unified["memory.swap.max"]; got != tt.file ||
			r.MemorySwapLimitInBytes != tt.together {
			t.Errorf("%s: %q and %d, want %q and %d", tt.name, got, r.MemorySwapLimitInBytes,
				tt.file, tt.together)
		}
	}
}
