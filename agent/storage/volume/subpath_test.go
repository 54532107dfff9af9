package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/mount-utils"
)

func hardLink(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Link(from, to); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, at string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// subPathed returns a pod whose container mounts path of a volume in a new directory.
func subPathed(t *testing.T, path string) (pod *v1.Pod, volume string) {
	t.Helper()
	volume = filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	pod = podWith(host("v", volume, ""))
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = path
	return pod, volume
}

// hostPathOf returns the source of the container's only mount.
func hostPathOf(v *Volumes, pod *v1.Pod) (string, error) {
	mounts, err := v.Containers.Mounts(context.Background(), pod, &pod.Spec.Containers[0], Start{
		Env: []*runtimeapi.KeyValue{{Key: "POD", Value: []byte("web-1")}},
	})
	if err != nil {
		return "", err
	}
	if len(mounts) != 1 {
		return "", fmt.Errorf("%d mounts", len(mounts))
	}
	return mounts[0].HostPath, nil
}

func TestSubPathResolved(t *testing.T) {
	tests := []struct {
		name, path string
		prepare    func(t *testing.T, volume string)
		want       string // below the volume
		err        string
	}{
		{"existing file", "a/file", func(t *testing.T, d string) { write(t, d+"/a/file", "") },
			"a/file", ""},
		{"new directories", "a/b//c/", nil, "a/b/c", ""},
		{"all of it", "./.", nil, "", ""},
		{"dots in a name", "..a/b..", nil, "..a/b..", ""},
		{"link inside", "link/x", func(t *testing.T, d string) {
			symlink(t, "real", d+"/link")
			write(t, d+"/real/x", "")
		}, "real/x", ""},
		{"link up and inside", "a/link", func(t *testing.T, d string) {
			symlink(t, "../real", d+"/a/link")
			write(t, d+"/real/x", "")
		}, "real", ""},
		{"link to an absolute path", "link",
			func(t *testing.T, d string) { symlink(t, "/etc", d+"/link") },
			"", "leads out of the volume"},
		{"link out", "link/x", func(t *testing.T, d string) { symlink(t, "../outside", d+"/link") },
			"", "leads out of the volume"},
		{"link out and back in", "link", func(t *testing.T, d string) {
			symlink(t, "../volume/real", d+"/link")
			write(t, d+"/real/x", "")
		}, "", "leads out of the volume"},
		{"new directory behind a link out", "link/new", func(t *testing.T, d string) {
			symlink(t, "../outside", d+"/link")
		}, "", "leads out of the volume"},
		{"link to nothing", "link", func(t *testing.T, d string) { symlink(t, "none", d+"/link") },
			"", "no such file"},
		{"links in a circle", "link", func(t *testing.T, d string) {
			symlink(t, "link", d+"/link")
		},
			"", "symbolic link"},
		{"link to a link of the kernel", "link", func(t *testing.T, d string) {
			symlink(t, "/proc/self/cwd", d+"/link")
		}, "", "leads out of the volume"},
		{"file as a directory", "file/x", func(t *testing.T, d string) { write(t, d+"/file", "") },
			"", "not a directory"},
		{"no volume", "x", func(t *testing.T, d string) {
			if err := os.Remove(d); err != nil {
				t.Fatal(err)
			}
		}, "", "open volume"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVolumes(t, Config{})
			v.node.asRoot = false
			pod, volume := subPathed(t, tt.path)
			outside := filepath.Join(filepath.Dir(volume), "outside")
			write(t, outside+"/x", "secret")
			if tt.prepare != nil {
				tt.prepare(t, volume)
			}
			got, err := hostPathOf(v, pod)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %s, %v; want an error with %q", got, err, tt.err)
				}
			} else if want := filepath.Join(volume, tt.want); err != nil || got != want {
				t.Errorf("got %s, %v; want %s", got, err, want)
			}
			if left := tree(t, outside); len(left) != 1 {
				t.Errorf("outside the volume there is now %q", left)
			}
		})
	}
}

func TestSubPathExpr(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	v.node.asRoot = false
	pod, volume := subPathed(t, "")
	pod.Spec.Containers[0].VolumeMounts[0].SubPathExpr = "logs/$(POD)/$$(POD)"
	got, err := hostPathOf(v, pod)
	if want := volume + "/logs/web-1/$(POD)"; err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

// New directories are as open as the volume, whatever the umask of the agent is.
func TestSubPathMode(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	v.node.asRoot = false
	pod, volume := subPathed(t, "a/b")
	if err := os.Chmod(volume, 0o777|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if _, err := hostPathOf(v, pod); err != nil {
		t.Fatal(err)
	}
	for _, line := range tree(t, volume) {
		if !strings.HasPrefix(line, "dgrwxrwxrwx ") {
			t.Error(line)
		}
	}
}

// While subPaths are resolved, a container swaps a directory for a link that leads out of
// the volume and back, as fast as it can.
func TestSubPathRace(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	v.node.asRoot = false
	pod, volume := subPathed(t, "swap/inner")
	outside := filepath.Join(filepath.Dir(volume), "outside")
	write(t, outside+"/inner/x", "secret")
	write(t, volume+"/swap/inner/x", "")
	symlink(t, outside, volume+"/link")

	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Since Linux 3.15.
			if err := unix.Renameat2(unix.AT_FDCWD, volume+"/swap", unix.AT_FDCWD, volume+"/link",
				unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("swap: %v", err)
				return
			}
		}
	})
	defer swapper.Wait()
	defer close(stop)
	for range 2000 {
		got, err := hostPathOf(v, pod)
		if err == nil && !strings.HasPrefix(got, volume+"/") {
			t.Fatalf("got %s, which is outside of %s", got, volume)
		}
		if err != nil && !strings.Contains(err.Error(), "leads out") &&
			!errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
	}
}

// A volume of a PVC is mounted below the name of the persistent volume, where the kubelet looks for
// what it has to unmount.
func TestSubPathOfAPVC(t *testing.T) {
	requireRoot(t)
	pvcs := bind(v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}})
	v, _ := newVolumes(t, Config{Mounter: mount.NewFakeMounter(nil), PVCs: pvcs})
	pod := podWith(pvcVolume("data"))
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "a"
	setUp(t, v, pod)
	want := filepath.Join(v.node.root, "pods/u/volume-subpaths/pv/c/0")
	if got, err := hostPathOf(v, pod); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestSubPathBound(t *testing.T) {
	requireRoot(t)
	v, _ := newVolumes(t, Config{Mounter: mount.NewWithoutSystemd("")})
	pod, volume := subPathed(t, "a/data")
	target := filepath.Join(v.node.root, "pods/u/volume-subpaths/v/c/0")
	t.Cleanup(func() {
		// No mount may outlive the test.
		for unix.Unmount(target, unix.MNT_DETACH) == nil {
		}
	})
	write(t, volume+"/a/data", "first")
	prepare := func(want string) {
		t.Helper()
		got, err := hostPathOf(v, pod)
		if err != nil || got != target {
			t.Fatalf("got %s, %v; want %s", got, err, target)
		}
		if text := read(t, target); text != want {
			t.Errorf("the container would see %q, want %q", text, want)
		}
		if mounts, err := v.node.mountsBelow(v.node.root); err != nil || len(mounts) != 1 {
			t.Errorf("mounted: %q, %v; want it once", mounts, err)
		}
	}
	prepare("first")
	prepare("first")

	// The mount stays what was checked, even if its name becomes something else.
	if err := os.Rename(volume+"/a", volume+"/b"); err != nil {
		t.Fatal(err)
	}
	symlink(t, "/etc", volume+"/a")
	if text := read(t, target); text != "first" {
		t.Errorf("the mount shows %q", text)
	}
	if got, err := hostPathOf(v, pod); err == nil {
		t.Errorf("got %s through a link that leads out", got)
	}

	// A new file of that name is mounted in place of the old one.
	if err := os.Remove(volume + "/a"); err != nil {
		t.Fatal(err)
	}
	write(t, volume+"/a/data", "second")
	prepare("second")

	if err := v.TearDown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if text := read(t, volume+"/a/data"); text != "second" {
		t.Errorf("the volume's file holds %q", text)
	}
}

// A directory takes the place of a file at the mount point.
func TestSubPathChangesKind(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	v.node.asRoot = true // mounts in memory
	pod, volume := subPathed(t, "x")
	write(t, volume+"/x", "file")
	target, err := hostPathOf(v, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(volume + "/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := hostPathOf(v, pod); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(target); err != nil || !info.IsDir() {
		t.Errorf("mount point: %v, %v; want a directory", info, err)
	}
}
