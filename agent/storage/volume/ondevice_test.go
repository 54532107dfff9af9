package volume

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"
)

// blockDevice returns a device node without a device.
func blockDevice(t *testing.T) string {
	t.Helper()
	requireRoot(t)
	path := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 99))); err != nil {
		t.Fatal(err)
	}
	return path
}

// mountsOf returns the mounts of a fake mounter: device and path, below root.
func mountsOf(m *mount.FakeMounter, root string) (out []string) {
	for _, p := range m.MountPoints {
		out = append(out, p.Device+" "+strings.TrimPrefix(p.Path, root+"/"))
	}
	slices.Sort(out)
	return out
}

// The file system on a device is mounted once, pods have mounts of that, and the last one takes it
// along.
func TestLocalVolumeOnDevice(t *testing.T) {
	device := blockDevice(t)
	s := bind(localAt(device))
	s.volumes["pv"].Spec.MountOptions = []string{"noatime"}
	s.volumes["pv"].Spec.Local.FSType = ptr.To("xfs")
	fake := mount.NewFakeMounter(nil)
	v, _ := newVolumes(t, Config{PVCs: s, Mounter: fake})
	root := v.node.root
	var formatted []string
	v.makers.devices.format = func(source, target, fstype string, options []string) error {
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
	pod, other := podWith(pvcVolume("data")), podWith(pvcVolume("data"))
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

// A pod that ends does not wait forever for a device whose mount for another pod hangs.
func TestTearDownWhileADeviceHangs(t *testing.T) {
	s := bind(localAt(blockDevice(t)))
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVolumes(t, Config{PVCs: s})
		hangs := make(chan struct{})
		v.makers.devices.format = func(string, string, string, []string) error { <-hangs; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := v.SetUp(ctx, podWith(pvcVolume("data"))); err == nil {
			t.Error("a mount that hangs is done")
		}
		at := v.node.root + "/pods/u2/volumes/kubernetes.io~local-volume/pv"
		if err := os.MkdirAll(at, dirMode); err != nil {
			t.Fatal(err)
		}
		const want = "volume kubernetes.io~local-volume/pv is being mounted for another pod"
		if err := v.TearDown(t.Context(), "u2"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		close(hangs)
		if err := v.TearDown(t.Context(), "u2"); err != nil {
			t.Error(err)
		}
	})
}

// If a device has another file system than its volume names, the volume gets an event.
func TestMismatchOfFilesystems(t *testing.T) {
	device := blockDevice(t)
	s := bind(localAt(device))
	s.volumes["pv"].Spec.Local.FSType = ptr.To("xfs")
	var reported []string
	v, _ := newVolumes(t, Config{PVCs: s, Mounter: mount.NewFakeMounter(nil),
		Ends: Ends{Tell: func(about runtime.Object, eventType, reason, message string) {
			pv, _ := about.(*v1.PersistentVolume)
			reported = append(reported, pv.GetName()+" "+eventType+" "+reason+" "+message)
		}}})
	kind := mount.UnknownMountError
	v.makers.devices.format = func(string, string, string, []string) error {
		return mount.NewMountError(kind, "wrong fs type")
	}
	for _, kind = range []mount.MountErrorType{mount.UnknownMountError, mount.FilesystemMismatch} {
		if err := v.SetUp(t.Context(), podWith(pvcVolume("data"))); err == nil {
			t.Error("what cannot be mounted was set up")
		}
	}
	want := []string{`pv Warning FailedMountOnFilesystemMismatch MountVolume failed for volume "pv" ` +
		"mount the file system on " + device + ": wrong fs type"}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A change of ownership that takes long has events: first advice, then progress.
func TestGivingAwayIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		cfg := Config{Ends: Ends{Tell: func(about runtime.Object, eventType, reason, message string) {
			pod, _ := about.(*v1.Pod)
			reported = append(reported, pod.Name+" "+eventType+" "+reason+" "+message)
		}}}
		pod := podWith(pvcVolume("data"))
		path := "/r/pods/u/volumes/kubernetes.io~local-volume/pv"
		at := newTarget(pod, "/r/pods/u", nil, nil, place{plugin: localName, name: "pv"})
		at.plugin, at.pv = locals(), &v1.PersistentVolume{}
		at.plugin.path = func(used) string { return path }
		var given atomic.Int64
		done, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); cfg.tellProgress(at, &given, done) }()
		time.Sleep(progressDelay - time.Second)
		synctest.Wait()
		if len(reported) > 0 {
			t.Errorf("told %q at once", reported)
		}
		time.Sleep(2 * time.Second)
		given.Store(7)
		time.Sleep(progressInterval)
		given.Store(9)
		close(done)
		<-ended
		const begin = " Warning VolumePermissionChangeInProgress Setting volume ownership for " +
			"u/volumes/kubernetes.io~local-volume/pv"
		want := []string{pod.Name + begin + " is taking longer than expected, consider using " +
			"OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/" +
			"security-context/#configure-volume-permission-and-ownership-change-policy-for-pods",
			pod.Name + begin + ", processed 7 files."}
		if diff := cmp.Diff(want, reported); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// A kubelet's mapping of a block volume is removed with its pod, and the volume's directory with
// the last pod. Loop devices on other files stay.
func TestWhatAKubeletMapped(t *testing.T) {
	fake := mount.NewFakeMounter(nil)
	v, _ := newVolumes(t, Config{Mounter: fake})
	dir := v.node.root + "/plugins/kubernetes.io~local-volume/volumeDevices"
	v.makers.mapped.loops, v.makers.mapped.nodes = t.TempDir(), t.TempDir()
	for _, at := range []string{"pv/u", "pv/u2", "other/u"} {
		write(t, dir+"/"+at, "")
		if err := fake.Mount("/dev/sdx", dir+"/"+at, "", []string{"bind"}); err != nil {
			t.Fatal(err)
		}
	}
	write(t, v.makers.mapped.loops+"/loop4/loop/backing_file", dir+"/pv/u2\n")
	left := func(want ...string) {
		t.Helper()
		var got []string
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				got = append(got, strings.TrimPrefix(path, dir+"/"))
			}
			return err
		})
		if err != nil || !slices.Equal(got, want) || len(fake.MountPoints) != len(want) {
			t.Errorf("there are %q (%v), mounted %v; want %q", got, err, fake.MountPoints, want)
		}
	}
	for range 2 {
		if err := v.TearDown(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		left("pv/u2")
	}
	// A loop device that cannot be ended keeps the rest for the next attempt.
	if err := v.Clear(t.Context(), "u2"); err == nil ||
		!strings.Contains(err.Error(), "end loop device loop4: open") {
		t.Errorf("a loop device that cannot be ended: %v", err)
	}
	left("pv/u2")
	if err := os.RemoveAll(v.makers.mapped.loops + "/loop4"); err != nil {
		t.Fatal(err)
	}
	if err := v.Clear(t.Context(), "u2"); err != nil {
		t.Fatal(err)
	}
	left()
	if _, err := os.Stat(dir + "/pv"); !os.IsNotExist(err) {
		t.Errorf("the volume's directory is left: %v", err)
	}
}

// A container gets a block volume as a device, by a link in the pod's directory, and only as that.
func TestBlockVolume(t *testing.T) {
	device := blockDevice(t)
	s := bind(localAt(device))
	s.volumes["pv"].Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	var reported []string
	v, _ := newVolumes(t, Config{PVCs: s,
		Ends: Ends{Tell: func(_ runtime.Object, eventType, reason, message string) {
			reported = append(reported, eventType+" "+reason+" "+message)
		}}})
	pod := podWith(pvcVolume("data"))
	c := &pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	setUp(t, v, pod)
	setUp(t, v, pod)
	got, err := v.Containers.Devices(pod, c)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	link := v.node.root + "/pods/u/volumeDevices/kubernetes.io~local-volume/pv"
	if want := `Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv" ` +
		`volumeMapPath "` + link + `"`; !slices.Equal(reported, []string{want}) {
		t.Errorf("told %q, want %q", reported, want)
	}
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
	if got, err := v.Containers.Devices(pod, c); err != nil || got[0].Permissions != "r" {
		t.Errorf("got %v, %v", got, err)
	}
	s.volumes["pv"].Spec.Local.Path = t.TempDir()
	if err := v.SetUp(t.Context(), pod); err == nil ||
		!strings.Contains(err.Error(), `MapVolume.MapBlockVolume failed for volume "pv" : local path`) ||
		!strings.Contains(err.Error(), "is no block device; volumeMode Filesystem takes a directory") {
		t.Errorf("got %v", err)
	}
	pod = podWith(empty("v", ""))
	setUp(t, v, pod)
	pod.Spec.Containers[0].VolumeDevices = c.VolumeDevices
	if _, err := v.Containers.Devices(pod, &pod.Spec.Containers[0]); err == nil ||
		!strings.Contains(err.Error(), "only a claim with volumeMode Block is a device") {
		t.Errorf("got %v", err)
	}
}
