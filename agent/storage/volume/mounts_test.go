package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestMounts(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith(empty("scratch", ""), host("etc", "/etc", ""))
	container := &pod.Spec.Containers[0]
	container.TerminationMessagePath = "/dev/termination-log"
	container.VolumeMounts = []v1.VolumeMount{
		{
			Name: "scratch", MountPath: "/a",
			MountPropagation: ptr.To(v1.MountPropagationBidirectional),
		},
		{Name: "scratch", MountPath: "relative/b", ReadOnly: true,
			RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)},
		{
			Name: "etc", MountPath: "/c/",
			MountPropagation: ptr.To(v1.MountPropagationHostToContainer),
			BindMountOptions: []string{"noexec", "nodev"},
		},
	}
	dir := setUp(t, v, pod)
	got, err := v.Containers.Mounts(t.Context(), pod, container, Start{Attempt: 3,
		PodIPs: []string{"10.0.0.7"}, RecursiveReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	scratch := filepath.Join(dir, "volumes/kubernetes.io~empty-dir/scratch")
	want := []*runtimeapi.Mount{
		{ContainerPath: "/a", HostPath: scratch, SelinuxRelabel: true,
			Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		{ContainerPath: "/relative/b", HostPath: scratch, SelinuxRelabel: true,
			Readonly: true, RecursiveReadOnly: true},
		{ContainerPath: "/c", HostPath: "/etc",
			Propagation:  runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
			MountOptions: []string{"noexec", "nodev"}},
		{
			ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "etc-hosts"),
			SelinuxRelabel: true,
		},
		{ContainerPath: "/dev/termination-log", SelinuxRelabel: true,
			HostPath: filepath.Join(dir, "containers/c/00000003")},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

func TestMountsRefuses(t *testing.T) {
	readOnly := func(mode v1.RecursiveReadOnlyMode) v1.VolumeMount {
		return v1.VolumeMount{Name: "v", ReadOnly: true, RecursiveReadOnly: &mode}
	}
	with := func(m v1.VolumeMount, change func(*v1.VolumeMount)) v1.VolumeMount {
		change(&m)
		return m
	}
	tests := []struct {
		name  string
		mount v1.VolumeMount
		want  string
	}{
		{"unknown volume",
			v1.VolumeMount{Name: "w"}, `mounts volume "w" at /m: the pod has no volume`},
		{"unknown propagation", v1.VolumeMount{Name: "v",
			MountPropagation: ptr.To[v1.MountPropagationMode]("Sideways")},
			`"Sideways" is none of`},
		{"recursive, writable",
			with(readOnly("Enabled"), func(m *v1.VolumeMount) { m.ReadOnly = false }),
			"needs readOnly: true"},
		{"recursive, propagated", with(readOnly("IfPossible"), func(m *v1.VolumeMount) {
			m.MountPropagation = ptr.To(v1.MountPropagationHostToContainer)
		}), "cannot be had with mountPropagation HostToContainer"},
		{"recursive, not in the runtime", readOnly("Enabled"), "use IfPossible"},
		{"recursive, unknown", readOnly("Maybe"), `"Maybe" is none of`},
		{"absolute subPath", v1.VolumeMount{Name: "v", SubPath: "/etc"},
			`subPath "/etc" must not be an absolute path`},
		{"subPath up", v1.VolumeMount{Name: "v", SubPath: "a/../../b"}, "must not contain '..'"},
		{"subPathExpr up", v1.VolumeMount{Name: "v", SubPathExpr: "$(UP)"},
			`subPathExpr ".." must not contain '..'`},
		{"subPathExpr of nothing", v1.VolumeMount{Name: "v", SubPathExpr: "a$(NONE)"},
			`no environment variable "NONE"`},
		{"empty subPathExpr", v1.VolumeMount{Name: "v", SubPathExpr: "$(EMPTY)"}, "is empty"},
		{"long subPathExpr", v1.VolumeMount{Name: "v", SubPathExpr: strings.Repeat("$(UP)/", 1500)},
			"subPathExpr becomes longer than the 4096 bytes of a path"},
		{"both", v1.VolumeMount{Name: "v", SubPath: "a", SubPathExpr: "a"}, "exclude each other"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVolumes(t, Config{})
			pod := podWith(empty("v", ""))
			setUp(t, v, pod)
			tt.mount.MountPath = "/m"
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{tt.mount}
			_, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{Env: []*runtimeapi.KeyValue{
				{Key: "UP", Value: []byte("..")}, {Key: "EMPTY"},
			}})
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), `container "c"`) {
				t.Errorf("got %v, want %q and the container in it", err, tt.want)
			}
		})
	}
}

func TestIfPossibleWithoutSupport(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith(empty("v", ""))
	m := &pod.Spec.Containers[0].VolumeMounts[0]
	m.ReadOnly, m.RecursiveReadOnly = true, ptr.To(v1.RecursiveReadOnlyIfPossible)
	setUp(t, v, pod)
	got, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{})
	if err != nil || len(got) != 1 || !got[0].Readonly || got[0].RecursiveReadOnly {
		t.Errorf("got %v, %v; want one plain read-only mount", got, err)
	}
}

const managed = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
	"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"

func TestHosts(t *testing.T) {
	aliases := []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b.c"}}, {IP: "::5"}}
	tests := []struct {
		name string
		spec v1.PodSpec
		ips  []string
		want string // "" is no file
	}{
		{"no address", v1.PodSpec{}, nil, ""},
		{"two addresses", v1.PodSpec{}, []string{"10.0.0.7", "fd00::7"},
			managed + "10.0.0.7\tweb\nfd00::7\tweb\n"},
		{"subdomain", v1.PodSpec{Hostname: "front", Subdomain: "sub"}, []string{"10.0.0.7"},
			managed + "10.0.0.7\tfront.sub.shop.svc.cluster.local\tfront\n"},
		{"aliases", v1.PodSpec{HostAliases: aliases}, []string{"10.0.0.7"}, managed +
			"10.0.0.7\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n::5\t\n"},
		{"host network", v1.PodSpec{HostNetwork: true, HostAliases: aliases[:1]}, nil,
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost me\n" +
				"\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "hosts")
			write(t, file, "127.0.0.1 localhost me\n")
			v, _ := newVolumes(t, Config{ClusterDomain: "cluster.local", HostsFile: file})
			pod := podWith()
			tt.spec.Containers = pod.Spec.Containers
			pod.Spec = tt.spec
			dir := setUp(t, v, pod)
			got, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{PodIPs: tt.ips})
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if len(got) > 0 {
					t.Errorf("got %v, want no mounts", got)
				}
				return
			}
			if len(got) != 1 || got[0].ContainerPath != "/etc/hosts" {
				t.Fatalf("got %v, want /etc/hosts only", got)
			}
			if diff := cmp.Diff(tt.want, read(t, filepath.Join(dir, "etc-hosts"))); diff != "" {
				t.Error("-want +got:\n", diff)
			}
		})
	}
}

func TestHostsOfTheUser(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith(host("mine", "/etc/hosts", ""))
	pod.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc//hosts"
	setUp(t, v, pod)
	got, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{PodIPs: []string{"10.0.0.7"}})
	if err != nil || len(got) != 1 || got[0].HostPath != "/etc/hosts" {
		t.Errorf("got %v, %v; want the user's file only", got, err)
	}
}

// A second container gets a current file that is still the one the first has mounted.
func TestHostsWrittenInPlace(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith()
	path := filepath.Join(setUp(t, v, pod), "etc-hosts")
	start := func(ip string) {
		t.Helper()
		_, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{PodIPs: []string{ip}})
		if err != nil {
			t.Fatal(err)
		}
	}
	start("10.0.0.7")
	link := filepath.Join(t.TempDir(), "first")
	hardLink(t, path, link)
	start("10.0.0.8")
	if got := read(t, link); got != managed+"10.0.0.8\tweb\n" {
		t.Errorf("the first container sees %q", got)
	}
}

// hostsMount neither blocks on a file in the place of the hosts file nor follows a link there. A
// regular file stays the same file.
func TestHostsFileInPlace(t *testing.T) {
	for name, intrude := range map[string]func(path, target string) error{
		"pipe":   func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"link":   func(path, target string) error { return os.Symlink(target, path) },
		"file":   func(path, _ string) error { return os.WriteFile(path, []byte("longer"), 0o600) },
		"device": func(path, _ string) error { return os.Symlink("/dev/zero", path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, target := filepath.Join(dir, "etc-hosts"), filepath.Join(dir, "target")
			err := errors.Join(os.WriteFile(target, []byte("kept"), 0o600), intrude(path, target))
			if err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"one", "another", "1"} {
				if err := writeInPlace(path, []byte(text)); err != nil {
					t.Fatal(err)
				}
				if got := read(t, path); got != text {
					t.Errorf("the file has %q, want %q", got, text)
				}
			}
			after, err := os.Lstat(path)
			if err != nil || after.Mode() != 0o644 {
				t.Errorf("the file is %v, %v", after, err)
			}
			if same := os.SameFile(before, after); same != (name == "file") {
				t.Errorf("it is the same file: %t", same)
			}
			if got := read(t, target); got != "kept" {
				t.Errorf("a link's target has %q", got)
			}
		})
	}
}
