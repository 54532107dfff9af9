package cri

import (
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/internal/podtest"
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
	for _, tt := range []struct {
		name      string
		qos       cgroups.MemoryQoS
		resources string
		ofPod     podtest.Option
		want      files
	}{
		{"gate off", cgroups.MemoryQoS{Reserve: true, Throttle: 0.9}, "memory=1Gi..", nil,
			files{"memory.high": "max"}},
		{"nothing reserved", on, "memory=1Gi..", nil, files{"memory.min": "0", "memory.low": "0"}},
		{"burstable", tiered, "memory=1Gi..", nil, files{"memory.low": "1073741824"}},
		{"guaranteed", tiered, "cpu=1 memory=1Gi", nil, files{"memory.min": "1073741824"}},
		{"no request", tiered, "cpu=1..", nil, files{"memory.min": "0", "memory.low": "0"}},
		{"throttled below its limit", throttled, "memory=1Gi..2Gi", nil,
			files{"memory.min": "0", "memory.low": "0", "memory.high": high(19 * gi / 10)}},
		{"the limit is the request", throttled, "cpu=1 memory=1Gi", nil,
			files{"memory.min": "0", "memory.low": "0"}},
		{"throttled below the node", throttled, "", nil,
			files{"memory.min": "0", "memory.low": "0", "memory.high": high(72 * gi / 10)}},
		{"throttled with its pod", throttled, "", podtest.Resources("memory=..2Gi"),
			files{"memory.min": "0", "memory.low": "0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := podtest.New("", podtest.Containers("c "+tt.resources), tt.ofPod)
			for _, unified := range []bool{true, false} {
				var got runtimeapi.LinuxContainerResources
				MemoryQoS{Unified: unified, MemoryQoS: tt.qos, Allocatable: 8 * gi}.
					add(&got, pod, &pod.Spec.Containers[0])
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
