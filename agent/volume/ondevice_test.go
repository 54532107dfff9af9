package volume

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"
)

// blockDevice is a device node that nothing is behind.
func blockDevice(t *testing.T) string {
	t.Helper()
	requireRoot(t)
	path := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 99))); err != nil {
		t.Fatal(err)
	}
	return path
}

// mountsOf are the mounts of a fake mounter: device and path, below root.
func mountsOf(m *mount.FakeMounter, root string) (out []string) {
	for _, p := range m.MountPoints {
		out = append(out, p.Device+" "+strings.TrimPrefix(p.Path, root+"/"))
	}
	slices.Sort(out)
	return out
}

// The file system on a device is mounted once, pods have mounts of that, and it goes with the last.
func TestLocalVolumeOnDevice(t *testing.T) {
	device := blockDevice(t)
	s := bind(localAt(device))
	s.volumes["pv"].Spec.MountOptions = []string{"noatime"}
	s.volumes["pv"].Spec.Local.FSType = ptr.To("xfs")
	fake := mount.NewFakeMounter(nil)
	v, _ := newVolumes(t, Config{Claims: s, Mounter: fake})
	root := v.root
	var formatted []string
	v.devices.format = func(source, target, fstype string, options []string) error {
		formatted = append(formatted, fstype+" "+strings.Join(options, ","))
		return fake.Mount(source, target, fstype, options)
	}
	const global = "plugins/kubernetes.io/local-volume/mounts/pv"
	at := func(pod string) string {
		return device + " pods/" + pod + "/volumes/kubernetes.io~local-volume/pv"
	}
	is := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, mountsOf(fake, root)); diff != "" {
			t.Errorf("mounts (-want +got):\n%s", diff)
		}
	}
	pod, other := podWith(claimVolume("data")), podWith(claimVolume("data"))
	other.UID = "u2"
	setUp(t, v, pod)
	setUp(t, v, other)
	is(device+" "+global, at("u"), at("u2"))
	for _, uid := range []types.UID{"u", "u", "u2"} {
		if err := v.TearDown(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		if uid == "u" {
			is(device+" "+global, at("u2"))
		}
	}
	is()
	if _, err := os.Stat(filepath.Join(root, global)); !os.IsNotExist(err) {
		t.Errorf("where the device was mounted is left: %v", err)
	}
	if want := []string{"xfs noatime"}; !slices.Equal(formatted, want) {
		t.Errorf("mounted as %q, want %q", formatted, want)
	}
}

// A container has a block volume as a device, by a link in the pod's directory, and only as that.
func TestBlockVolume(t *testing.T) {
	device := blockDevice(t)
	s := bind(localAt(device))
	s.volumes["pv"].Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	v, _ := newVolumes(t, Config{Claims: s})
	pod := podWith(claimVolume("data"))
	c := &pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	setUp(t, v, pod)
	setUp(t, v, pod)
	got, err := v.Devices(pod, c)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	link := v.root + "/pods/u/volumeDevices/kubernetes.io~local-volume/pv"
	if d := got[0]; d.HostPath != link || d.ContainerPath != "/dev/x" || d.Permissions != "mrw" {
		t.Errorf("the container has %v", d)
	}
	if to, err := os.Readlink(link); to != device {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if err := v.TearDown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	setUp(t, v, pod)
	if got, err := v.Devices(pod, c); err != nil || got[0].Permissions != "r" {
		t.Errorf("got %v, %v", got, err)
	}
	s.volumes["pv"].Spec.Local.Path = t.TempDir()
	if err := v.SetUp(t.Context(), pod); err == nil ||
		!strings.Contains(err.Error(), "is no block device; volumeMode Filesystem takes a directory") {
		t.Errorf("got %v", err)
	}
	pod = podWith(empty("v", ""))
	setUp(t, v, pod)
	pod.Spec.Containers[0].VolumeDevices = c.VolumeDevices
	if _, err := v.Devices(pod, &pod.Spec.Containers[0]); err == nil ||
		!strings.Contains(err.Error(), "only a claim with volumeMode Block is a device") {
		t.Errorf("got %v", err)
	}
}
