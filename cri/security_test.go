package cri

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// secured returns testPod with these security contexts on the pod and its first container.
func secured(shared *v1.PodSecurityContext, own *v1.SecurityContext) *v1.Pod {
	pod := testPod()
	pod.Spec.SecurityContext = shared
	pod.Spec.Containers[0].SecurityContext = own
	return pod
}

// The paths that are hidden from containers, or read-only, unless procMount says otherwise. They
// are the kubelet's, and containerd's lists contain them all. The test repeats the lists so that it
// notices a path that the code lacks.
var (
	wantMasked = []string{
		"/proc/asound",        // sound devices
		"/proc/acpi",          // power states, which can be changed
		"/proc/interrupts",    // a side channel to other containers' work
		"/proc/kcore",         // the kernel's memory
		"/proc/keys",          // all users' keys
		"/proc/latency_stats", // other processes' stacks
		"/proc/timer_list",    // other processes' timers
		"/proc/timer_stats",
		"/proc/sched_debug", // all processes of the host
		"/proc/scsi",        // can remove disks
		"/sys/firmware",
		"/sys/devices/virtual/powercap", // a side channel through power use
	}
	wantReadonly = []string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
	}
)

func TestContainerSecurityDefaults(t *testing.T) {
	pod := secured(nil, nil)
	got, err := containerSecurity(pod, &pod.Spec.Containers[0], ImageUser{}, SecurityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER,
			UsernsOptions: (*IDs)(nil).options()},
		Seccomp:       profile(runtimeapi.SecurityProfile_Unconfined),
		MaskedPaths:   wantMasked,
		ReadonlyPaths: wantReadonly,
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

// A host's own paths are masked too, unless procMount is Unmasked.
func TestMaskedPathsOfTheHost(t *testing.T) {
	const own = "/sys/devices/system/cpu/cpu0/thermal_throttle"
	for mount, want := range map[v1.ProcMountType][]string{
		v1.DefaultProcMount:  slices.Concat(wantMasked, []string{own}),
		v1.UnmaskedProcMount: nil,
	} {
		pod := secured(nil, &v1.SecurityContext{ProcMount: &mount})
		got, err := containerSecurity(pod, &pod.Spec.Containers[0], ImageUser{},
			SecurityOptions{Masked: []string{own}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.MaskedPaths, want) {
			t.Errorf("procMount %s: masked are %q, want %q", mount, got.MaskedPaths, want)
		}
	}
}

func TestContainerSecurityAll(t *testing.T) {
	pod := secured(&v1.PodSecurityContext{
		RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](2000),
		FSGroup:                  ptr.To[int64](3000),
		SupplementalGroups:       []int64{4000, 4001},
		SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict),
		SELinuxOptions:           &v1.SELinuxOptions{Level: "s0:c1"},
	}, &v1.SecurityContext{
		RunAsUser: ptr.To[int64](1001), Privileged: ptr.To(true),
		ReadOnlyRootFilesystem:   ptr.To(true),
		AllowPrivilegeEscalation: ptr.To(false), ProcMount: ptr.To(v1.UnmaskedProcMount),
		Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"},
			Drop: []v1.Capability{"ALL"}},
	})
	pod.Spec.HostNetwork, pod.Spec.HostIPC, pod.Spec.HostPID = true, true, true
	got, err := containerSecurity(pod, &pod.Spec.Containers[0], ImageUser{Username: "www"},
		SecurityOptions{SeccompDefault: true, ExtraGroups: []int64{5000}})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.LinuxContainerSecurityContext{
		Privileged: true, ReadonlyRootfs: true, NoNewPrivs: true,
		NamespaceOptions: &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
			Pid: runtimeapi.NamespaceMode_NODE, UsernsOptions: (*IDs)(nil).options(),
		},
		RunAsUser:                &runtimeapi.Int64Value{Value: 1001},
		RunAsGroup:               &runtimeapi.Int64Value{Value: 2000},
		SupplementalGroups:       []int64{3000, 5000, 4000, 4001},
		SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
		SelinuxOptions:           &runtimeapi.SELinuxOption{Level: "s0:c1"},
		Seccomp:                  profile(runtimeapi.SecurityProfile_RuntimeDefault),
		Capabilities: &runtimeapi.Capability{
			AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

func TestRunAsNonRoot(t *testing.T) {
	const who = `(pod: "web_shop(u-1)", container: main)`
	yes, no := ptr.To(true), ptr.To(false)
	uid := func(n int64) *int64 { return &n }
	tests := []struct {
		name   string
		shared v1.PodSecurityContext
		own    v1.SecurityContext
		image  ImageUser
		want   string // "": accepted
	}{
		{"not asked, root", v1.PodSecurityContext{}, v1.SecurityContext{}, ImageUser{}, ""},
		{"image without user", v1.PodSecurityContext{RunAsNonRoot: yes}, v1.SecurityContext{},
			ImageUser{}, "container has runAsNonRoot and image will run as root " + who},
		{"image says 0", v1.PodSecurityContext{}, v1.SecurityContext{RunAsNonRoot: yes},
			ImageUser{UID: uid(0)}, "container has runAsNonRoot and image will run as root " + who},
		{"image says 7", v1.PodSecurityContext{RunAsNonRoot: yes}, v1.SecurityContext{},
			ImageUser{UID: uid(7)}, ""},
		{"image says www", v1.PodSecurityContext{RunAsNonRoot: yes}, v1.SecurityContext{},
			ImageUser{Username: "www"},
			"container has runAsNonRoot and image has non-numeric user (www), cannot verify " +
				"user is non-root " + who},
		{"container asks for root", v1.PodSecurityContext{RunAsNonRoot: yes, RunAsUser: uid(9)},
			v1.SecurityContext{RunAsUser: uid(0)}, ImageUser{UID: uid(7)},
			"container's runAsUser breaks non-root policy " + who},
		{"pod asks for 9", v1.PodSecurityContext{RunAsNonRoot: yes, RunAsUser: uid(9)},
			v1.SecurityContext{}, ImageUser{}, ""},
		{"container lifts it", v1.PodSecurityContext{RunAsNonRoot: yes},
			v1.SecurityContext{RunAsNonRoot: no}, ImageUser{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := secured(&tt.shared, &tt.own)
			_, err := containerSecurity(pod, &pod.Spec.Containers[0], tt.image, SecurityOptions{})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRunAsImageUser(t *testing.T) {
	pod := secured(nil, nil)
	for _, tt := range []struct {
		image ImageUser
		uid   *runtimeapi.Int64Value
		name  string
	}{
		{ImageUser{UID: ptr.To[int64](7), Username: ""}, &runtimeapi.Int64Value{Value: 7}, ""},
		{ImageUser{Username: "www"}, nil, "www"},
	} {
		got, err := containerSecurity(pod, &pod.Spec.Containers[0], tt.image, SecurityOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(tt.uid, got.RunAsUser, protocmp.Transform()) || got.RunAsUsername != tt.name {
			t.Errorf("%+v: got user %v, name %q", tt.image, got.RunAsUser, got.RunAsUsername)
		}
	}
}

func TestSeccomp(t *testing.T) {
	local := func(name string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &name}
	}
	kind := func(k v1.SeccompProfileType) *v1.SeccompProfile { return &v1.SeccompProfile{Type: k} }
	tests := []struct {
		name        string
		shared, own *v1.SeccompProfile
		byDefault   bool
		want        string
		err         string
	}{
		{"nothing", nil, nil, false, "Unconfined", ""},
		{"node default", nil, nil, true, "RuntimeDefault", ""},
		{"pod", kind("RuntimeDefault"), nil, false, "RuntimeDefault", ""},
		{"container over pod", kind("RuntimeDefault"), kind("Unconfined"), true, "Unconfined", ""},
		{"file", nil, local("a/b.json"), false, "Localhost /var/lib/kubelet/seccomp/a/b.json", ""},
		{"file outside", nil, local("../b.json"), false, "", "path below /var/lib/kubelet/seccomp"},
		{"absolute file", nil, local("/etc/b.json"), false, "", "path below"},
		{"no file", nil, kind("Localhost"), false, "", "localhostProfile"},
		{"unknown", kind("Sometimes"), nil, false, "", `type "Sometimes" is none of`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := secured(&v1.PodSecurityContext{SeccompProfile: tt.shared},
				&v1.SecurityContext{SeccompProfile: tt.own})
			out, err := containerSecurity(pod, &pod.Spec.Containers[0], ImageUser{},
				SecurityOptions{
					SeccompDefault: tt.byDefault, SeccompRoot: "/var/lib/kubelet/seccomp",
				})
			checkProfile(t, out.GetSeccomp(), err, tt.want, tt.err)
		})
	}
}

func TestAppArmor(t *testing.T) {
	local := func(name string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	kind := func(k v1.AppArmorProfileType) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: k}
	}
	tests := []struct {
		name        string
		shared, own *v1.AppArmorProfile
		annotation  string
		want        string
		legacy      string
		err         string
	}{
		{"nothing", nil, nil, "", "", "", ""},
		{"pod", kind("RuntimeDefault"), nil, "", "RuntimeDefault", "runtime/default", ""},
		{"container", kind("RuntimeDefault"), local("mine"), "", "Localhost mine", "localhost/mine",
			""},
		{"annotation", kind("RuntimeDefault"), nil, "unconfined", "Unconfined", "unconfined", ""},
		{"annotation names a file", nil, nil, "localhost/mine", "Localhost mine", "localhost/mine",
			""},
		{"field over annotation", nil, kind("Unconfined"), "runtime/default",
			"Unconfined", "unconfined", ""},
		{"wrong annotation", nil, nil, "strict", "", "", `annotation "strict" is none of`},
		{"no name", nil, kind("Localhost"), "", "", "", "needs localhostProfile"},
		{"unknown", nil, kind("Odd"), "", "", "", `type "Odd"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := secured(&v1.PodSecurityContext{AppArmorProfile: tt.shared},
				&v1.SecurityContext{AppArmorProfile: tt.own})
			if tt.annotation != "" {
				const main = "container.apparmor.security.beta.kubernetes.io/main"
				pod.Annotations[main] = tt.annotation
			}
			out, err := containerSecurity(pod, &pod.Spec.Containers[0], ImageUser{},
				SecurityOptions{})
			checkProfile(t, out.GetApparmor(), err, tt.want, tt.err)
			if out.GetApparmorProfile() != tt.legacy {
				t.Errorf("got legacy %q, want %q", out.GetApparmorProfile(), tt.legacy)
			}
		})
	}
}

// checkProfile compares a profile, written as its type and file, or the error.
func checkProfile(t *testing.T, p *runtimeapi.SecurityProfile, err error, want, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("got error %v, want %q in it", err, wantErr)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	if p != nil {
		got = strings.TrimSpace(p.ProfileType.String() + " " + p.LocalhostRef)
	}
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
