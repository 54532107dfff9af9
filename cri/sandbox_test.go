package cri

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

func TestSandboxConfig(t *testing.T) {
	pod := testPod()
	pod.Labels[LabelPodName] = "a lie"
	pod.Spec.Overhead = list("cpu=250m memory=64Mi")
	pod.Spec.ShareProcessNamespace = ptr.To(true)
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{
		{ContainerPort: 80},
		{ContainerPort: 53, HostPort: 5353, HostIP: "10.0.0.1", Protocol: v1.ProtocolUDP},
	}
	pod.Spec.Containers[1].SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true)}
	pod.Spec.InitContainers = []v1.Container{
		{Name: "init", Ports: []v1.ContainerPort{{ContainerPort: 1}}},
		{Name: "side", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways),
			Ports: []v1.ContainerPort{{ContainerPort: 2, Protocol: v1.ProtocolSCTP}}},
	}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: ptr.To[int64](1), FSGroup: ptr.To[int64](2), SupplementalGroups: []int64{3},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
		Sysctls:        []v1.Sysctl{{Name: "net.core.somaxconn", Value: "1024"}},
	}
	dns := &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}}
	got, err := SandboxConfig(pod, SandboxOptions{
		Attempt: 2, LogsDir: "/var/log/pods", CgroupParent: "/kubepods/burstable/podu-1",
		DNS: dns, ExtraGroups: []int64{9},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: "web", Namespace: "shop", Uid: "u-1", Attempt: 2,
		},
		Hostname:     "web",
		LogDirectory: "/var/log/pods/shop_web_u-1",
		DnsConfig:    dns,
		PortMappings: []*runtimeapi.PortMapping{
			{ContainerPort: 2, Protocol: runtimeapi.Protocol_SCTP},
			{ContainerPort: 80},
			{ContainerPort: 53, HostPort: 5353, HostIp: "10.0.0.1",
				Protocol: runtimeapi.Protocol_UDP},
		},
		Labels: map[string]string{
			"app": "web", "tier": "a b", "io.kubernetes.pod.name": "web",
			"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "u-1",
		},
		Annotations: map[string]string{"note": "x\"y"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/burstable/podu-1",
			Sysctls:      map[string]string{"net.core.somaxconn": "1024"},
			// 1500m; a container without limits does not raise the sum of the limits.
			Resources: &runtimeapi.LinuxContainerResources{
				CpuShares: 1536, CpuPeriod: 100000, CpuQuota: 25000, MemoryLimitInBytes: gi,
			},
			Overhead: &runtimeapi.LinuxContainerResources{
				CpuShares: 256, CpuPeriod: 100000, CpuQuota: 25000, MemoryLimitInBytes: 64 << 20,
			},
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD,
					UsernsOptions: (*IDs)(nil).options()},
				RunAsUser:          &runtimeapi.Int64Value{Value: 1},
				SupplementalGroups: []int64{2, 9, 3},
				Privileged:         true,
				Seccomp:            profile(runtimeapi.SecurityProfile_RuntimeDefault),
			},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
	if pod.Labels[LabelPodName] != "a lie" {
		t.Error("the pod itself was changed")
	}
}

func TestSandboxHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	tests := []struct {
		name string
		meta string
		spec v1.PodSpec
		want string
		err  string
	}{
		{"pod name", "web", v1.PodSpec{}, "web", ""},
		{"spec", "web", v1.PodSpec{Hostname: "front"}, "front", ""},
		{"long name is cut and trimmed", long, v1.PodSpec{}, strings.Repeat("a", 62), ""},
		{"subdomain alone changes nothing", "web", v1.PodSpec{Subdomain: "sub"}, "web", ""},
		{"FQDN", "web", v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: ptr.To(true)},
			"web.sub.ns.svc.cluster.local", ""},
		{"FQDN without subdomain", "web", v1.PodSpec{SetHostnameAsFQDN: ptr.To(true)}, "web", ""},
		{"FQDN too long", long, v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: ptr.To(true)},
			"", "is too long (64 characters is the max, 87 characters requested)"},
		{"override", "web", v1.PodSpec{Hostname: "front", HostnameOverride: ptr.To("a.b.c")},
			"a.b.c", ""},
		{"host network", "web", v1.PodSpec{HostNetwork: true, Hostname: "front"}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := podtest.New("ns/"+tt.meta, podtest.Spec(tt.spec))
			got, err := SandboxConfig(pod, SandboxOptions{ClusterDomain: "cluster.local"})
			if tt.err != "" {
				var start *StartError
				if !errors.As(err, &start) || start.Reason != ReasonConfigPodSandbox ||
					!strings.Contains(start.Message, tt.err) {
					t.Fatalf("got %v, want %s with %q", err, ReasonConfigPodSandbox, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Hostname != tt.want {
				t.Errorf("got %q, want %q", got.Hostname, tt.want)
			}
		})
	}
}

// Defaults apply to namespaces of the pod's own, and the pod's own values win.
func TestDefaultSysctls(t *testing.T) {
	defaults := map[string]string{"net/core/somaxconn": "1", "net.ipv4.tcp_syncookies": "1",
		"kernel.shmmax": "1", "fs.mqueue.msg_max": "1", "user.max_user_namespaces": "1",
		"kernel.domainname": "d", "vm.swappiness": "1"}
	for want, edit := range map[string]func(*v1.PodSpec){
		"map[fs.mqueue.msg_max:1 kernel.domainname:d kernel.shmmax:1 net.core.somaxconn:2 " +
			"net.ipv4.tcp_syncookies:1]": func(*v1.PodSpec) {},
		"map[fs.mqueue.msg_max:1 kernel.shmmax:1 net.core.somaxconn:2]": func(s *v1.PodSpec) {
			s.HostNetwork = true
		},
		"map[kernel.domainname:d net.core.somaxconn:2 net.ipv4.tcp_syncookies:1]": func(s *v1.PodSpec) {
			s.HostIPC = true
		},
		"map[fs.mqueue.msg_max:1 kernel.domainname:d kernel.shmmax:1 net.core.somaxconn:2 " +
			"net.ipv4.tcp_syncookies:1 user.max_user_namespaces:1]": func(s *v1.PodSpec) {
			s.HostUsers = ptr.To(false)
		},
	} {
		pod := podtest.New("pod", podtest.Spec(v1.PodSpec{SecurityContext: &v1.PodSecurityContext{
			Sysctls: []v1.Sysctl{{Name: "net.core.somaxconn", Value: "2"}}}}))
		edit(&pod.Spec)
		got, err := SandboxConfig(pod, SandboxOptions{Sysctls: defaults})
		if err != nil || fmt.Sprint(got.Linux.Sysctls) != want {
			t.Errorf("%v, %v, want %s", got.Linux.Sysctls, err, want)
		}
	}
}

// As with the kubelet, the runtime gets the ports of a pod in the host's network too.
func TestPortsOfTheHost(t *testing.T) {
	pod := testPod()
	pod.Spec.HostNetwork = true
	pod.Spec.Containers = []v1.Container{
		{Name: "main", Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}
	got, err := SandboxConfig(pod, SandboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80}}
	if diff := cmp.Diff(want, got.PortMappings, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}
