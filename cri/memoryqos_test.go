package cri

import (
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
)

// A kubelet 1.37 gives a runtime these values for the same containers.
func TestMemoryQoSOfContainers(t *testing.T) {
	high := func(bytes int) string {
		return strconv.Itoa(bytes / os.Getpagesize() * os.Getpagesize())
	}
	type files = map[string]string
	on := cgroups.MemoryQoS{On: true}
	tiered := cgroups.MemoryQoS{On: true, Reserve: true}
	throttled := cgroups.MemoryQoS{On: true, Throttle: 0.9}
	one := list("cpu=1 memory=1Gi")
	for _, tt := range []struct {
		name             string
		qos              cgroups.MemoryQoS
		requests, limits v1.ResourceList
		ofPod            *v1.ResourceRequirements
		want             files
	}{
		{"gate off", cgroups.MemoryQoS{Reserve: true, Throttle: 0.9}, list("memory=1Gi"), nil, nil,
			files{"memory.high": "max"}},
		{"nothing reserved", on, list("memory=1Gi"), nil, nil,
			files{"memory.min": "0", "memory.low": "0"}},
		{"burstable", tiered, list("memory=1Gi"), nil, nil, files{"memory.low": "1073741824"}},
		{"guaranteed", tiered, one, one, nil, files{"memory.min": "1073741824"}},
		{"no request", tiered, list("cpu=1"), nil, nil,
			files{"memory.min": "0", "memory.low": "0"}},
		{"throttled below its limit", throttled, list("memory=1Gi"), list("memory=2Gi"), nil,
			files{"memory.min": "0", "memory.low": "0", "memory.high": high(19 * gi / 10)}},
		{"the limit is the request", throttled, one, one, nil,
			files{"memory.min": "0", "memory.low": "0"}},
		{"throttled below the node", throttled, nil, nil, nil,
			files{"memory.min": "0", "memory.low": "0", "memory.high": high(72 * gi / 10)}},
		{"throttled with its pod", throttled, nil, nil,
			&v1.ResourceRequirements{Limits: list("memory=2Gi")},
			files{"memory.min": "0", "memory.low": "0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := v1.Container{Name: "c",
				Resources: v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}}
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}, Resources: tt.ofPod}}
			for _, unified := range []bool{true, false} {
				var got runtimeapi.LinuxContainerResources
				MemoryQoS{Unified: unified, MemoryQoS: tt.qos, Allocatable: 8 * gi}.
					add(&got, pod, &c)
				want := tt.want
				if !unified {
					want = nil
				}
				if diff := cmp.Diff(want, got.Unified); diff != "" {
					t.Errorf("cgroup v2: %v: -want +got\n%s", unified, diff)
				}
			}
		})
	}
}
