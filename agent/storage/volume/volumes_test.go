package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// newVolumes returns Volumes with a root in a new directory that mount in memory only.
func newVolumes(t *testing.T, cfg Config) (*Volumes, *mount.FakeMounter) {
	t.Helper()
	mounter := mount.NewFakeMounter(nil)
	if cfg.Mounter == nil {
		cfg.Mounter = mounter
	}
	cfg.Root = filepath.Join(t.TempDir(), "root")
	v, err := New(alone(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return v, mounter
}

// alone completes the configuration with functions that report nothing.
func alone(c Config) Config {
	if c.Facts == nil {
		c.Facts = func() cri.Facts { return cri.Facts{} }
	}
	if c.Done == nil {
		c.Done = func(operation.Done) {}
	}
	if c.Labels == nil {
		c.Labels = func() map[string]string { return nil }
	}
	if c.Tell == nil {
		c.Tell = func(runtime.Object, string, string, string) {}
	}
	return c
}

// podWith returns a pod with UID u and one container, c, that mounts each of the volumes.
func podWith(volumes ...v1.Volume) *v1.Pod {
	return podtest.New("shop/web", podtest.UID("u"), podtest.Containers("c"),
		podtest.Mounts(volumes...))
}

func empty(name string, medium v1.StorageMedium) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium},
	}}
}

func host(name, path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind},
	}}
}

// setUp sets the pod up and returns its directory.
func setUp(t *testing.T, v *Volumes, pod *v1.Pod) string {
	t.Helper()
	if err := v.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(v.node.root, "pods", string(pod.UID))
}

// tree lists what is below dir as "MODE PATH".
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil || path == dir {
			return err
		}
		out = append(out, fmt.Sprintf("%v %s", info.Mode(), strings.TrimPrefix(path, dir+"/")))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func TestSetUpLayout(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith(empty("scratch", ""), v1.Volume{Name: "bare"})
	pod.Spec.Volumes = append(pod.Spec.Volumes, empty("unused", ""))
	setUp(t, v, pod)
	want := []string{
		"drwxr-x--- u",
		"drwxr-x--- u/plugins",
		"drwxr-x--- u/plugins/kubernetes.io~empty-dir",
		"drwxr-x--- u/plugins/kubernetes.io~empty-dir/bare",
		"-rw-r----- u/plugins/kubernetes.io~empty-dir/bare/ready",
		"drwxr-x--- u/plugins/kubernetes.io~empty-dir/scratch",
		"-rw-r----- u/plugins/kubernetes.io~empty-dir/scratch/ready",
		"drwxr-x--- u/volumes",
		"drwxr-x--- u/volumes/kubernetes.io~empty-dir",
		"drwxrwxrwx u/volumes/kubernetes.io~empty-dir/bare",
		"drwxrwxrwx u/volumes/kubernetes.io~empty-dir/scratch",
	}
	if diff := cmp.Diff(want, tree(t, filepath.Join(v.node.root, "pods"))); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

func TestSetUpAgainKeepsContent(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith(empty("scratch", ""))
	dir := emptyDirPath(setUp(t, v, pod), "scratch")
	// The container tightens its directory and works in it.
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "work"), "x")
	setUp(t, v, pod)
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v, the container's was 0700", info.Mode())
	}
	if got := read(t, filepath.Join(dir, "work")); got != "x" {
		t.Errorf("content is %q", got)
	}
}

// A crash can leave any prefix of the steps behind.
func TestSetUpResumes(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	dir := emptyDirPath(filepath.Join(v.node.root, "pods", "u"), "scratch")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	setUp(t, v, podWith(empty("scratch", "")))
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("got %v, %v; want mode 0777", info, err)
	}
}

func TestFSGroup(t *testing.T) {
	requireRoot(t)
	v, _ := newVolumes(t, Config{})
	pod := podWith(empty("scratch", ""))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4711)}
	var stat unix.Stat_t
	if err := unix.Stat(emptyDirPath(setUp(t, v, pod), "scratch"), &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Gid != 4711 || stat.Mode&0o7777 != 0o2777 {
		t.Errorf("group %d, mode %o; want 4711, 2777", stat.Gid, stat.Mode&0o7777)
	}
}

// Unsupported names those volumes that a container uses and that are not supported, and says of which
// no version will be.
func TestUnsupported(t *testing.T) {
	disk := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{}}}
	if never, err := Unsupported(podWith(disk)); !never || err == nil || err.Error() != `volume "v": a volume of `+
		"type flexVolume is not supported, and the pod does not start: Kubernetes has deprecated it; use "+
		"the CSI driver of the storage's vendor, by csi or persistentVolumeClaim" {
		t.Errorf("of a FlexVolume: %t, %v", never, err)
	}
	disk.FlexVolume, disk.ISCSI, disk.Secret = nil, &v1.ISCSIVolumeSource{}, &v1.SecretVolumeSource{}
	if never, err := Unsupported(podWith(disk)); never || err == nil {
		t.Errorf("of an unknown volume: %t, %v", never, err)
	}
	unused := podWith(disk)
	unused.Spec.Containers[0].VolumeMounts = nil
	for name, pod := range map[string]*v1.Pod{
		"unused": unused, "claim": podWith(pvcVolume("x")), "scratch": podWith(empty("v", "")),
	} {
		if _, err := Unsupported(pod); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetUpRefuses(t *testing.T) {
	source := func(s v1.VolumeSource) v1.Volume { return v1.Volume{Name: "v", VolumeSource: s} }
	changed := func(change func(*v1.Pod)) *v1.Pod {
		pod := podWith(empty("v", ""))
		change(pod)
		return pod
	}
	tests := []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"two types", podWith(source(v1.VolumeSource{
			ISCSI: &v1.ISCSIVolumeSource{}, Secret: &v1.SecretVolumeSource{},
		})),
			`volume "v": a volume of type secret+iscsi is not supported yet, and the pod waits for it; ` +
				`use emptyDir, hostPath, configMap, secret, downwardAPI, projected, image, nfs, iscsi, fc, ` +
				`csi or persistentVolumeClaim`},
		{"removed", podWith(source(v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{}})),
			`volume "v": a volume of type gitRepo is not supported, and the pod does not start: Kubernetes ` +
				`has removed it; clone in an init container, into an emptyDir`},
		{"flex", podWith(source(v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{}})), "type flexVolume is not"},
		{"rbd", podWith(source(v1.VolumeSource{RBD: &v1.RBDVolumeSource{}})), "driver rbd.csi.ceph.com"},
		{"cephfs", podWith(source(v1.VolumeSource{CephFS: &v1.CephFSVolumeSource{}})), "driver cephfs.csi.ceph.com"},
		{"gluster", podWith(source(v1.VolumeSource{Glusterfs: &v1.GlusterfsVolumeSource{}})), "use nfs, or a CSI"},
		{"flocker", podWith(source(v1.VolumeSource{Flocker: &v1.FlockerVolumeSource{}})), "type flocker is not"},
		{"quobyte", podWith(source(v1.VolumeSource{Quobyte: &v1.QuobyteVolumeSource{}})), "type quobyte is not"},
		{"scaleIO", podWith(source(v1.VolumeSource{ScaleIO: &v1.ScaleIOVolumeSource{}})), "type scaleIO is not"},
		{"storageos", podWith(source(v1.VolumeSource{StorageOS: &v1.StorageOSVolumeSource{}})), "type storageos is"},
		{"photon", podWith(source(v1.VolumeSource{PhotonPersistentDisk: &v1.PhotonPersistentDiskVolumeSource{}})),
			"type photonPersistentDisk is not supported, and the pod does not start: Kubernetes has removed it"},
		{"device", changed(func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{pvcVolume("x")}
			p.Spec.Containers[0].VolumeMounts = nil
			p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v"}}
		}), "error processing PVC shop/x: there is no API server to get it from"},
		{"no API server", podWith(source(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}})),
			`MountVolume.SetUp failed for volume "v" : there is no API server to get its content ` +
				`from; run the agent with --kubeconfig`},
		{"claim", podWith(pvcVolume("x")), "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], " +
			"failed to process volumes=[v]: error processing PVC shop/x: there is no API server"},
		{"medium", podWith(empty("v", "Tape")), `volume "v" : medium "Tape" is not one of`},
		{"UID", changed(func(p *v1.Pod) { p.UID = "../u" }), `pod UID name "../u"`},
		{"no UID", changed(func(p *v1.Pod) { p.UID = "" }), `pod UID name ""`},
		{"volume", changed(func(p *v1.Pod) { p.Spec.Volumes[0].Name = ".." }), `volume name ".."`},
		{"container", changed(func(p *v1.Pod) { p.Spec.Containers[0].Name = "a/b" }),
			`container name "a/b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVolumes(t, Config{})
			err := v.SetUp(t.Context(), tt.pod)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
			if _, err := os.Stat(filepath.Join(v.node.root, "u")); err == nil {
				t.Error("something was made outside the directory of pods")
			}
		})
	}
}

func TestRefusedPodLeavesNothing(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith(empty("good", ""),
		v1.Volume{Name: "bad", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{}}})
	if err := v.SetUp(t.Context(), pod); err == nil {
		t.Fatal("a FlexVolume was accepted")
	}
	if got := tree(t, filepath.Join(v.node.root, "pods")); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestSetUpCancelled(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.SetUp(ctx, podWith(empty("v", ""))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNewRefusesRelativeRoot(t *testing.T) {
	_, err := New(Config{Root: "var/lib"})
	if err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("got %v", err)
	}
}
