package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestConflicts(t *testing.T) {
	answers := []*v1beta1.ContainerAllocateResponse{
		{
			Envs:        map[string]string{"A": "1", "SAME": "x", "Z": "1"},
			Mounts:      []*v1beta1.Mount{{ContainerPath: "/lib", HostPath: "/opt/a"}},
			Devices:     []*v1beta1.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/x0"}},
			Annotations: map[string]string{"a/b": "1"},
		},
		{},
		{
			Envs: map[string]string{"Z": "2", "A": "2", "SAME": "x", "OWN": "y"},
			Mounts: []*v1beta1.Mount{
				{ContainerPath: "/lib", HostPath: "/opt/b"}, {ContainerPath: "/etc"},
			},
			Devices:     []*v1beta1.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/x1"}},
			Annotations: map[string]string{"a/b": "2"},
		},
		{
			Envs: map[string]string{"OWN": "z"},
			Devices: []*v1beta1.DeviceSpec{
				{ContainerPath: "/dev/x", HostPath: "/dev/x0", Permissions: "rw"},
			},
		},
	}
	const env = "Environment variable has conflicting setting"
	want := []Conflict{
		{env, "A", "1", "2", 0, 2},
		{env, "Z", "1", "2", 0, 2},
		{"Container device has conflicting mapping host devices",
			"/dev/x", "/dev/x0", "/dev/x1", 0, 2},
		{"Container mount has conflicting mapping host mounts", "/lib", "/opt/a", "/opt/b", 0, 2},
		{"Annotation has conflicting setting", "a/b", "1", "2", 0, 2},
		{env, "OWN", "y", "z", 2, 3},
	}
	if diff := cmp.Diff(want, Conflicts(answers)); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	got := deviceSettings(answers)
	for _, kv := range got.envs {
		if kv.Key == "A" && string(kv.Value) != "1" || kv.Key == "OWN" && string(kv.Value) != "y" {
			t.Errorf("the container gets %s=%s", kv.Key, kv.Value)
		}
	}
}
