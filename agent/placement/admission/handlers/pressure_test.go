package handlers

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

func TestPressure(t *testing.T) {
	pod := func(container string, option podtest.Option) *v1.Pod {
		return podtest.New("", podtest.Containers(container), option)
	}
	tolerating := func(t v1.Toleration) *v1.Pod {
		return pod("c", podtest.Spec(v1.PodSpec{Tolerations: []v1.Toleration{t}}))
	}
	bestEffort, burstable := pod("c", nil), pod("c cpu=1..", nil)
	critical := pod("c", podtest.Priority(2_000_000_000))
	tolerant := tolerating(v1.Toleration{Key: v1.TaintNodeMemoryPressure,
		Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule})
	otherwise := tolerating(v1.Toleration{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists})
	const memory, disk, pids = v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure
	for _, tc := range []struct {
		name  string
		pod   *v1.Pod
		short []v1.NodeConditionType
		want  string
	}{
		{"no pressure", bestEffort, nil, ""},
		{"memory", bestEffort, []v1.NodeConditionType{memory},
			"The node had condition: [MemoryPressure]. "},
		{"memory, burstable", burstable, []v1.NodeConditionType{memory}, ""},
		{"memory, tolerant", tolerant, []v1.NodeConditionType{memory}, ""},
		{"memory, critical", critical, []v1.NodeConditionType{memory}, ""},
		{"memory, tolerant of disk pressure", otherwise, []v1.NodeConditionType{memory},
			"The node had condition: [MemoryPressure]. "},
		{"disk, tolerant", otherwise, []v1.NodeConditionType{disk},
			"The node had condition: [DiskPressure]. "},
		{"PIDs, tolerant", tolerant, []v1.NodeConditionType{pids},
			"The node had condition: [PIDPressure]. "},
		{"memory and PIDs, burstable", burstable, []v1.NodeConditionType{memory, pids},
			"The node had condition: [MemoryPressure PIDPressure]. "},
		{"disk, burstable", burstable, []v1.NodeConditionType{disk},
			"The node had condition: [DiskPressure]. "},
		{"disk, critical", critical, []v1.NodeConditionType{disk}, ""},
		{"disk and memory, tolerant", tolerant, []v1.NodeConditionType{disk, memory},
			"The node had condition: [DiskPressure MemoryPressure]. "},
	} {
		got := Pressure(false)(decide.Attempt{Demand: decide.DemandOf(tc.pod, nil, topology.Rules{}), State: nodestatus.State{Pressure: tc.short}})
		switch {
		case got == nil && tc.want != "":
			t.Errorf("%s: passes; want %q", tc.name, tc.want)
		case got != nil && (got.Message != tc.want || got.Reason != "Evicted" || got.Wait):
			t.Errorf("%s: %+v; want %q, at once", tc.name, *got, tc.want)
		}
	}
}
