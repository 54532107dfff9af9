package podspec

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestHostPorts(t *testing.T) {
	ports := func(p ...v1.ContainerPort) v1.Container { return v1.Container{Ports: p} }
	sidecar := ports(v1.ContainerPort{HostPort: 3, Protocol: v1.ProtocolUDP})
	sidecar.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{ports(v1.ContainerPort{HostPort: 9}), sidecar},
		Containers: []v1.Container{ports(v1.ContainerPort{ContainerPort: 1},
			v1.ContainerPort{HostPort: 2, HostIP: "0.0.0.0"},
			v1.ContainerPort{HostPort: 2, HostIP: "10.0.0.1"})},
	}}
	want := []HostPort{{v1.ProtocolUDP, "", 3}, {v1.ProtocolTCP, "", 2},
		{v1.ProtocolTCP, "10.0.0.1", 2}}
	if got := HostPorts(pod); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	base := HostPort{v1.ProtocolTCP, "10.0.0.1", 80}
	for o, conflicts := range map[HostPort]bool{
		base:                             true,
		{v1.ProtocolTCP, "", 80}:         true,
		{v1.ProtocolTCP, "10.0.0.2", 80}: false,
		{v1.ProtocolUDP, "10.0.0.1", 80}: false,
		{v1.ProtocolTCP, "10.0.0.1", 81}: false,
	} {
		if base.Conflicts(o) != conflicts || o.Conflicts(base) != conflicts {
			t.Errorf("%+v and %+v: not %v", base, o, conflicts)
		}
	}
}
