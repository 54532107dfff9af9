package cri

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/ptr"
)

func TestContainerConfig(t *testing.T) {
	pod := testPod()
	pod.DeletionGracePeriodSeconds = ptr.To[int64](5)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	container := &pod.Spec.Containers[0]
	container.Command = []string{"/bin/run", "$(WHO)", "$$(WHO)", "$(NOBODY)"}
	container.Args = []string{"--gpus=$(GPUS)"}
	container.Env = []v1.EnvVar{{Name: "WHO", Value: "me"}}
	container.WorkingDir = "/work/$(WHO)"
	container.Stdin, container.StdinOnce, container.TTY = true, true, true
	container.TerminationMessagePath = "/dev/termination-log"
	container.TerminationMessagePolicy = v1.TerminationMessageReadFile
	container.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80,
		Protocol: v1.ProtocolTCP}}
	container.Lifecycle = &v1.Lifecycle{
		StopSignal: ptr.To[v1.Signal]("SIGRTMIN+3"),
		PreStop:    &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}},
	}
	got, err := ContainerConfig(pod, container, ContainerOptions{
		Attempt: 3,
		Image:   ImageRef{Ref: "sha256:abc", User: ImageUser{Username: "www"}},
		Facts:   testFacts(),
		Mounts:  []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/v"}},
		Devices: []*v1beta1.ContainerAllocateResponse{
			{
				Envs: map[string]string{"GPUS": "0"},
				Mounts: []*v1beta1.Mount{
					{ContainerPath: "/lib/gpu", HostPath: "/usr/lib/gpu", ReadOnly: true},
				},
				Devices: []*v1beta1.DeviceSpec{
					{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu7", Permissions: "rw"},
				},
				Annotations: map[string]string{"gpu": "7", AnnotationHash: "forged"},
				CdiDevices:  []*v1beta1.CDIDevice{{Name: "example.com/gpu=7"}},
			},
			{
				Mounts: []*v1beta1.Mount{{ContainerPath: "/lib/gpu", HostPath: "/second"}},
				Devices: []*v1beta1.DeviceSpec{
					{ContainerPath: "/dev/gpu0", HostPath: "/dev/second"},
					{ContainerPath: "/dev/nic", HostPath: "/dev/nic", Permissions: "mrw"},
				},
				Annotations: map[string]string{"gpu": "second", "nic": "1"},
				CdiDevices: []*v1beta1.CDIDevice{{Name: "example.com/gpu=7"},
					{Name: "example.com/nic=1"}},
			},
		},
		Resources: ContainerResources(pod, container, ResourceOptions{NodeMemory: 100 << 30},
			Placement{CPUs: "4-5", Mems: "1"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	const ports = `[{"name":"http","containerPort":80,"protocol":"TCP"}]`
	want := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: "main", Attempt: 3},
		Image:      &runtimeapi.ImageSpec{Image: "sha256:abc", UserSpecifiedImage: "img:1"},
		Command:    []string{"/bin/run", "me", "$(WHO)", "$(NOBODY)"},
		Args:       []string{"--gpus=0"},
		WorkingDir: "/work/$(WHO)",
		Envs:       []*runtimeapi.KeyValue{keyValue("GPUS", "0"), keyValue("WHO", "me")},
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/lib/gpu", HostPath: "/usr/lib/gpu", Readonly: true},
			{ContainerPath: "/data", HostPath: "/v"},
		},
		Devices: []*runtimeapi.Device{
			{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu7", Permissions: "rw"},
			{ContainerPath: "/dev/nic", HostPath: "/dev/nic", Permissions: "mrw"},
		},
		CDIDevices: []*runtimeapi.CDIDevice{{Name: "example.com/gpu=7"},
			{Name: "example.com/nic=1"}},
		Labels: map[string]string{
			"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop",
			"io.kubernetes.pod.uid": "u-1", "io.kubernetes.container.name": "main",
		},
		Annotations: map[string]string{
			"gpu": "7", "nic": "1",
			"io.kubernetes.container.hash":                     ContainerHash(container),
			"io.kubernetes.container.restartCount":             "3",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.container.preStopHandler":           `{"sleep":{"seconds":3}}`,
			"io.kubernetes.container.ports":                    ports,
			"io.kubernetes.pod.deletionGracePeriod":            "5",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
		LogPath: "main/3.log",
		Stdin:   true, StdinOnce: true, Tty: true,
		StopSignal: runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{
				CpuShares: 1536, CpuPeriod: 100000, MemoryLimitInBytes: gi, OomScoreAdj: 999,
				CpusetCpus: "4-5", CpusetMems: "1",
			},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Pid:           runtimeapi.NamespaceMode_CONTAINER,
					UsernsOptions: (*IDs)(nil).options(),
				},
				RunAsUsername: "www",
				Seccomp:       profile(runtimeapi.SecurityProfile_Unconfined),
				MaskedPaths:   wantMasked, ReadonlyPaths: wantReadonly,
			},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

func TestContainerConfigErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(*v1.Container)
		want   string
	}{
		{"environment", func(c *v1.Container) {
			c.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{}}}
		}, "envFrom"},
		{"security", func(c *v1.Container) {
			c.SecurityContext = &v1.SecurityContext{RunAsNonRoot: ptr.To(true)}
		}, "image will run as root"},
		{"signal", func(c *v1.Container) {
			c.Lifecycle = &v1.Lifecycle{StopSignal: ptr.To[v1.Signal]("SIGWAVE")}
		}, `stopSignal "SIGWAVE"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := testPod()
			tt.change(&pod.Spec.Containers[0])
			_, err := ContainerConfig(pod, &pod.Spec.Containers[0], ContainerOptions{})
			var start *StartError
			if !errors.As(err, &start) || start.Reason != "CreateContainerConfigError" ||
				!strings.Contains(start.Message, tt.want) {
				t.Errorf("got %v, want a CreateContainerConfigError with %q", err, tt.want)
			}
		})
	}
}

// CRI has a counterpart for every signal that the API can name.
func TestStopSignals(t *testing.T) {
	for _, signal := range []v1.Signal{
		v1.SIGTERM, v1.SIGKILL, v1.SIGRTMIN, v1.SIGRTMINPLUS15, v1.SIGRTMAX, v1.SIGRTMAXMINUS14,
	} {
		got, err := stopSignal(&v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: &signal}})
		if err != nil || got == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
			t.Errorf("%s: got %v, %v", signal, got, err)
		}
	}
	if got, err := stopSignal(&v1.Container{}); err != nil || got != 0 {
		t.Errorf("no signal: got %v, %v", got, err)
	}
}

func TestContainerHash(t *testing.T) {
	c := v1.Container{Name: "test_container", Image: "foo/image:v1"}
	// The kubelet computes this hash for the same name and image.
	if got, want := ContainerHash(&c), "8e45cbd0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	other := c
	other.Args = []string{"x"}
	if ContainerHash(&other) != ContainerHash(&c) {
		t.Error("arguments are part of the hash")
	}
	other.Image = "foo/image:v2"
	if ContainerHash(&other) == ContainerHash(&c) {
		t.Error("the image is not part of the hash")
	}
}

func TestLegacyLogName(t *testing.T) {
	pod := testPod()
	if got, want := LegacyLogName(pod, "main", "f00"), "web_shop_main-f00.log"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	pod.Name = strings.Repeat("n", 253)
	if got := LegacyLogName(pod, "main", "f00"); len(got) != 255 ||
		!strings.HasSuffix(got, ".log") {
		t.Errorf("got %d bytes: %s", len(got), got)
	}
}
