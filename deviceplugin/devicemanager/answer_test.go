package devicemanager

import (
	"slices"
	"testing"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// A runtime's error is attributed to an answer only if it contains a part of it as a whole name.
func TestNamedIn(t *testing.T) {
	answer := &v1beta1.ContainerAllocateResponse{
		Devices:    []*v1beta1.DeviceSpec{{HostPath: "/dev/x"}, {HostPath: "/dev/x"}, {HostPath: "/"}},
		Mounts:     []*v1beta1.Mount{{HostPath: "/opt/driver"}},
		CdiDevices: []*v1beta1.CDIDevice{{Name: "vendor.com/gpu=0"}},
	}
	for text, want := range map[string][]string{
		"": nil,
		`failed to generate spec: lstat /dev/x: no such file or directory`: {`the device "/dev/x"`},
		`lstat "/dev/x"`: {`the device "/dev/x"`},
		`failed to stat "/opt/driver": no such file; stat /dev/x.`:                {`the device "/dev/x"`, `the mount of "/opt/driver"`},
		`CDI device injection failed: unresolvable CDI devices vendor.com/gpu=0`:  {`the CDI device "vendor.com/gpu=0"`},
		`unresolvable CDI devices vendor.com/gpu=01`:                              nil,
		`lstat /dev/xy: no such file; lstat /host/dev/x: no; /opt/driver/lib: no`: nil,
		`lstat /dev/xy, and then /dev/x`:                                          {`the device "/dev/x"`},
	} {
		if got := NamedIn(text, answer); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
