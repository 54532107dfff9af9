package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

func emptyDirPath(podDir, volume string) string { return place{emptyDirName, volume}.in(podDir) }

// mediums shows what is mounted as "TYPE OPTIONS NAME".
func mediums(m *mount.FakeMounter) []string {
	var out []string
	for _, p := range m.MountPoints {
		out = append(out, p.Type+" "+strings.Join(p.Opts, ",")+" "+filepath.Base(p.Path))
	}
	return out
}

// TestCount: the kernel is asked to count what is written to emptyDirs on disk, of pods with users
// of their own. A volume is made if it cannot.
func TestCount(t *testing.T) {
	for name, tc := range map[string]struct {
		hostUsers *bool
		want      []string
		err       error
	}{
		"own users":        {ptr.To(false), []string{"cache"}, nil},
		"cannot":           {ptr.To(false), []string{"cache"}, errors.New("it cannot")},
		"the host's users": {nil, nil, nil},
	} {
		var counted []string
		v, _ := newVolumes(t, Config{Count: func(dir string) error {
			counted = append(counted, filepath.Base(dir))
			return tc.err
		}})
		pod := podtest.New("a", podtest.Containers("main"), podtest.Mounts(
			v1.Volume{Name: "cache"}, v1.Volume{Name: "shm", VolumeSource: v1.VolumeSource{
				EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}))
		pod.Spec.HostUsers = tc.hostUsers
		for range 2 { // the second time the volume is there
			if err := v.SetUp(t.Context(), pod); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !slices.Equal(counted, tc.want) {
			t.Errorf("%s: counted are %v; want %v", name, counted, tc.want)
		}
	}
}

func TestMediums(t *testing.T) {
	limited := func(volume v1.Volume, size string) v1.Volume {
		volume.EmptyDir.SizeLimit = ptr.To(resource.MustParse(size))
		return volume
	}
	tests := []struct {
		name   string
		memory int64 // of the node
		limits string
		volume v1.Volume
		want   []string
	}{
		{"disk", 1 << 30, "", empty("v", ""), nil},
		{"memory", 0, "", empty("v", "Memory"), []string{"tmpfs noswap v"}},
		{"the node's memory", 1 << 30, "", empty("v", "Memory"),
			[]string{"tmpfs size=1073741824,noswap v"}},
		{"the pod's memory", 1 << 30, "memory=1Mi", empty("v", "Memory"),
			[]string{"tmpfs size=1048576,noswap v"}},
		{"its own limit", 1 << 30, "memory=1Mi", limited(empty("v", "Memory"), "4Ki"),
			[]string{"tmpfs size=4096,noswap v"}},
		{"a limit above the pod's", 0, "memory=1Mi", limited(empty("v", "Memory"), "2Mi"),
			[]string{"tmpfs size=1048576,noswap v"}},
		{"huge pages by name", 0, "hugepages-2Mi=4Mi", empty("v", "HugePages-2Mi"),
			[]string{"hugetlbfs pagesize=2097152 v"}},
		{"huge pages of the limits", 0, "hugepages-1Gi=1Gi", empty("v", "HugePages"),
			[]string{"hugetlbfs pagesize=1073741824 v"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, mounter := newVolumes(t, Config{Facts: func() cri.Facts {
				return cri.Facts{Allocatable: v1.ResourceList{
					v1.ResourceMemory: *resource.NewQuantity(tt.memory, resource.BinarySI)}}
			}})
			pod := podWith(tt.volume)
			pod.Spec.Containers[0].Resources = podtest.Requirements(tt.limits)
			setUp(t, v, pod)
			setUp(t, v, pod) // nothing is left to do
			if diff := cmp.Diff(tt.want, mediums(mounter)); diff != "" {
				t.Error("-want +got:\n", diff)
			}
		})
	}
}

// A medium of pages that the pod does not request is not mounted.
func TestHugePagesNotAskedFor(t *testing.T) {
	for medium, want := range map[string]string{
		"HugePages": "name 0 page sizes",
		"HugePages-1Gi": "medium HugePages-1Gi: hugePages storage requested, but there is no resource " +
			"request for huge pages; add hugepages-1Gi to the limits of a container",
	} {
		v, mounter := newVolumes(t, Config{})
		pod := podWith(empty("v", v1.StorageMedium(medium)))
		if medium != "HugePages" {
			pod.Spec.Containers[0].Resources.Limits = podtest.Amounts("hugepages-2Mi=4Mi")
		}
		err := v.SetUp(t.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), want) || len(mediums(mounter)) > 0 {
			t.Errorf("%s: %v, mounted %q; want %s", medium, err, mediums(mounter), want)
		}
	}
}

// refusing fails mounts of a type or with an option.
type refusing struct {
	*mount.FakeMounter
	word string
}

func (r refusing) Mount(source, target, fstype string, options []string) error {
	if slices.Contains(options, r.word) || r.word == fstype {
		return errors.New("refused " + r.word)
	}
	return r.FakeMounter.Mount(source, target, fstype, options)
}

func TestTmpfsWithoutNoswap(t *testing.T) {
	fake := mount.NewFakeMounter(nil)
	v, _ := newVolumes(t, Config{Mounter: refusing{fake, "noswap"}})
	setUp(t, v, podWith(empty("v", "Memory")))
	if diff := cmp.Diff([]string{"tmpfs  v"}, mediums(fake)); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

// A volume that could not be mounted does not count as ready afterwards.
func TestFailedMountIsTriedAgain(t *testing.T) {
	fake := mount.NewFakeMounter(nil)
	v, _ := newVolumes(t, Config{Mounter: refusing{fake, "tmpfs"}})
	pod := podWith(empty("v", "Memory"))
	err := v.SetUp(t.Context(), pod)
	want := `MountVolume.SetUp failed for volume "v" : mount emptyDir of medium Memory: refused tmpfs`
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	v.node.mounter = fake
	setUp(t, v, pod)
	if got := mediums(fake); len(got) != 1 {
		t.Errorf("mounted: %q", got)
	}
	// After a reboot the mark is there and the mount is gone.
	fake.MountPoints = nil
	setUp(t, v, pod)
	if got := mediums(fake); len(got) != 1 {
		t.Errorf("mounted after a reboot: %q", got)
	}
}

func TestTmpfsForReal(t *testing.T) {
	requireRoot(t)
	v, _ := newVolumes(t, Config{Mounter: hostMounter{
		mount.NewWithoutSystemd("").(*mount.Mounter)}})
	pod := podWith(empty("v", "Memory"))
	pod.Spec.Volumes[0].EmptyDir.SizeLimit = ptr.To(resource.MustParse("1Mi"))
	dir := emptyDirPath(filepath.Join(v.node.root, "pods", "u"), "v")
	t.Cleanup(func() {
		// Whatever went wrong, no mount may outlive the test.
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
	})
	setUp(t, v, pod)
	setUp(t, v, pod)
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Type != unix.TMPFS_MAGIC || int64(stat.Blocks)*stat.Bsize != 1<<20 {
		t.Errorf("type %x, %d bytes; want a tmpfs of 1 MiB",
			stat.Type, int64(stat.Blocks)*stat.Bsize)
	}
	write(t, filepath.Join(dir, "content"), strings.Repeat("x", 1<<19))
	for _, size := range []int64{2 << 20, 1 << 20} {
		if err := v.ResizeInMemory("u", "v", size); err != nil {
			t.Fatal(err)
		}
		if err := unix.Statfs(dir, &stat); err != nil || int64(stat.Blocks)*stat.Bsize != size {
			t.Errorf("%d bytes, %v; want %d", int64(stat.Blocks)*stat.Bsize, err, size)
		}
	}
	if err := v.ResizeInMemory("u", "unused", 1<<20); err != nil {
		t.Errorf("one that nobody uses: %v", err)
	}
	if err := v.ResizeInMemory("u", "v", 1<<18); err == nil || !strings.Contains(err.Error(), "what is in it") {
		t.Errorf("it shrinks below its content: %v", err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("its mode is %v, %v; want all rights, and sticky", info.Mode(), err)
	}
	mounts, err := v.node.mountsBelow(v.node.root)
	if err != nil || len(mounts) != 1 {
		t.Errorf("mounted: %q, %v; want it once", mounts, err)
	}
	write(t, filepath.Join(dir, "file"), "x")
	if err := v.TearDown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if mounts, err = v.node.mountsBelow(v.node.root); err != nil || len(mounts) != 0 {
		t.Errorf("still mounted: %q, %v", mounts, err)
	}
	if got := tree(t, filepath.Join(v.node.root, "pods")); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}

// IsMountPoint sees bind mounts and mounts of files, without touching them.
func TestIsMountPoint(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	write(t, dir+"/file", "")
	write(t, dir+"/plain", "")
	for _, name := range []string{"bound", "empty"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	symlink(t, dir+"/bound", dir+"/link")
	for _, name := range []string{"bound", "file"} {
		at := filepath.Join(dir, name)
		if err := unix.Mount(at, at, "", unix.MS_BIND, ""); err != nil {
			t.Skip("bind mounts cannot be had: ", err)
		}
		t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	}
	for name, want := range map[string]bool{"bound": true, "file": true, "plain": false,
		"empty": false, "link": false} {
		if got, err := (hostMounter{}).IsMountPoint(filepath.Join(dir, name)); err != nil ||
			got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"none", "none/below"} {
		_, err := (hostMounter{}).IsMountPoint(filepath.Join(dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// With EmptyDirVolumeMode a directory has the mode of its own, sticky included, on disk and in
// memory; the pod's group may do anything in it all the same. Without the gate the mode counts nothing.
func TestEmptyDirMode(t *testing.T) {
	requireRoot(t)
	gates := map[bool]func(string) bool{
		true: func(gate string) bool { return gate == "EmptyDirVolumeMode" }, false: nil}
	for name, test := range map[string]struct {
		gate   bool
		medium string
		mode   int32
		group  *int64
		want   fs.FileMode
	}{
		"sticky":           {gate: true, mode: 0o1750, want: fs.ModeDir | fs.ModeSticky | 0o750},
		"nothing":          {gate: true, mode: 0, want: fs.ModeDir},
		"in memory":        {gate: true, medium: "Memory", mode: 0o700, want: fs.ModeDir | 0o700},
		"a group":          {gate: true, mode: 0o500, group: ptr.To[int64](7), want: fs.ModeDir | fs.ModeSetgid | 0o770},
		"without its gate": {mode: 0o700, want: fs.ModeDir | 0o777},
	} {
		v, _ := newVolumes(t, Config{Enabled: gates[test.gate]})
		volume := empty("v", v1.StorageMedium(test.medium))
		volume.EmptyDir.Mode = &test.mode
		pod := podWith(volume)
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: test.group}
		dir := setUp(t, v, pod)
		info, err := os.Stat(filepath.Join(dir, "volumes/kubernetes.io~empty-dir/v"))
		if err != nil || info.Mode() != test.want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, test.want)
		}
	}
}
