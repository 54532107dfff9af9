package localstorage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume"
)

// node is a root directory with pods.
type node struct {
	*Meter
	t    *testing.T
	root string
	pods []*v1.Pod
	by   []string // how volumes were measured
}

func newNode(t *testing.T, pods ...*v1.Pod) *node {
	n := &node{t: t, root: t.TempDir(), pods: pods}
	n.Meter = New(Config{Root: n.root, LogsDir: filepath.Join(n.root, "logs"), Period: time.Minute,
		Pods:   func() []*v1.Pod { return n.pods },
		Looked: func(by string, _ time.Duration) { n.by = append(n.by, by) },
	})
	return n
}

func (n *node) write(path string, size int) {
	n.t.Helper()
	path = filepath.Join(n.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// look measures what is due, as the goroutines do.
func (n *node) look(now time.Time) map[types.UID]Pod {
	n.files(n.t.Context())
	for _, pod := range n.due(now) {
		h, _ := n.known(pod.UID)
		n.begin(pod.UID)
		n.measure(n.t.Context(), pod, h, 0)
	}
	return n.Get()
}

func names(all []Volume) (out []string) {
	for _, v := range all {
		out = append(out, v.Name)
	}
	return out
}

// TestMeasure: of a pod's volumes those that the agent makes count, and as local storage emptyDirs
// on disk and ConfigMaps; of its logs the files.
func TestMeasure(t *testing.T) {
	pod := with("main, side", empty("cache", "", ""), v1.Volume{Name: "default"},
		empty("shm", v1.StorageMediumMemory, ""), empty("gone", "", ""),
		v1.Volume{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		v1.Volume{Name: "key", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}})
	n := newNode(t, pod)
	const volumes = "pods/a/volumes/kubernetes.io~"
	for path, size := range map[string]int{
		volumes + "empty-dir/cache/below/file": 64 << 10, volumes + "empty-dir/default/file": 1,
		volumes + "empty-dir/shm/file": 1, volumes + "configmap/conf/file": 1,
		volumes + "secret/key/file": 1, volumes + "empty-dir/of-nobody/file": 64 << 10,
		"logs/default_a_a/main/0.log": 4096, "logs/default_a_a/main/below/file": 64 << 10,
		"logs/default_a_a/own.log": 4096, "logs/default_a_a/other/0.log": 4096, "pods/a/etc-hosts": 4096,
	} {
		n.write(path, size)
	}
	got := n.look(time.Now())["a"]
	if want := []string{"cache", "default", "shm", "conf", "key"}; !slices.Equal(names(got.Volumes), want) {
		t.Fatalf("volumes are %v; want %v", names(got.Volumes), want)
	}
	cache := got.Volumes[0]
	if cache.Used.Inodes != 3 || cache.Used.Bytes < 64<<10 || cache.Room.Capacity == 0 || cache.At.IsZero() {
		t.Errorf("cache is %+v", cache)
	}
	for _, v := range got.Volumes {
		if local := v.Name != "shm" && v.Name != "key"; v.Local != local {
			t.Errorf("%s: local is %t", v.Name, v.Local)
		}
	}
	if len(got.Logs) != 1 || got.Logs["main"] != (diskusage.Usage{Bytes: 4096, Inodes: 1}) ||
		got.Files != (diskusage.Usage{Bytes: 8192, Inodes: 2}) {
		t.Errorf("logs are %+v, files %+v", got.Logs, got.Files)
	}
}

// TestMeasureAgain: a pod is measured when it is due, and forgotten when it is gone.
func TestMeasureAgain(t *testing.T) {
	n := newNode(t, with("main", empty("cache", "", "")))
	const file = "pods/a/volumes/kubernetes.io~empty-dir/cache/"
	n.write(file+"1", 1)
	inodes := func(after time.Duration) uint64 {
		t.Helper()
		all := n.look(time.Now().Add(after))["a"].Volumes
		if len(all) != 1 {
			t.Fatalf("volumes are %+v", all)
		}
		return all[0].Used.Inodes
	}
	if got := inodes(0); got != 2 {
		t.Errorf("first there are %d inodes", got)
	}
	n.write(file+"2", 1)
	if got := inodes(time.Minute); got != 2 {
		t.Errorf("before it is due there are %d inodes", got)
	}
	if got := inodes(2 * time.Minute); got != 3 {
		t.Errorf("when it is due there are %d inodes", got)
	}
	n.pods = nil
	if all := n.look(time.Now()); len(all) != 0 || len(n.volumes) != 0 {
		t.Errorf("of a pod that is gone there is %+v, %+v", all, n.volumes)
	}
}

// TestAnew: what somebody asks for is measured at once, and once.
func TestAnew(t *testing.T) {
	n := newNode(t, with("main", empty("cache", "", "")))
	const file = "pods/a/volumes/kubernetes.io~empty-dir/cache/file"
	n.write(file, 1)
	now := time.Now()
	n.look(now)
	n.write(file, 64<<10)
	if used := n.look(now)["a"].Volumes[0].Used; used.Bytes >= 64<<10 {
		t.Errorf("it was measured before its time: %+v", used)
	}
	n.Anew([]types.UID{"a", "unknown"})
	if used := n.look(now)["a"].Volumes[0].Used; used.Bytes < 64<<10 {
		t.Errorf("it was not measured anew: %+v", used)
	}
	if due := n.due(now); len(due) > 0 || len(n.volumes) != 1 {
		t.Errorf("afterwards %d are due, and %d known", len(due), len(n.volumes))
	}
}

// A pod that is being measured when somebody asks is measured once more, since it may have been passed
// already; meanwhile that is in a hurry. Who asks does not wait for ever.
func TestAnewWhileMeasured(t *testing.T) {
	n := newNode(t, with("main", empty("cache", "", "")))
	n.write("pods/a/volumes/kubernetes.io~empty-dir/cache/1", 1)
	n.look(time.Now())
	h, _ := n.known("a")
	n.begin("a")
	if n.hurries("a") {
		t.Error("it is in a hurry, and nobody asked")
	}
	asked := false
	n.cfg.Looked = func(string, time.Duration) { // in the middle of it
		if !asked {
			asked = true
			soon, late := n.Anew([]types.UID{"a"})
			if !slices.Equal(soon, []types.UID{"a"}) || len(late) > 0 || !n.hurries("a") {
				t.Errorf("coming are %v and %v, in a hurry: %t", soon, late, n.hurries("a"))
			}
		}
	}
	n.measure(t.Context(), n.pods[0], h, 0)
	if due := n.due(time.Now()); len(due) != 1 {
		t.Errorf("afterwards %d are due", len(due))
	}
	if due := n.due(time.Now().Add(patience)); len(due) != 0 {
		t.Errorf("after a while %d are due", len(due))
	}
	slow := n.volumes["a"]
	slow.worked = time.Minute
	n.volumes["a"] = slow
	if soon, late := n.Anew([]types.UID{"a"}); len(soon)+len(late) != 0 {
		t.Errorf("of what takes long and was just measured %v and %v are coming", soon, late)
	}
	slow.at = slow.at.Add(-restsAsked * slow.worked)
	n.volumes["a"] = slow
	if soon, late := n.Anew([]types.UID{"a"}); len(soon) != 0 || len(late) != 1 || len(n.due(time.Now())) != 1 {
		t.Errorf("of what takes long %v and %v are coming", soon, late)
	}
}

// TestMeasureEnds: a walk that its end interrupts leaves what was known.
func TestMeasureEnds(t *testing.T) {
	n := newNode(t, with("main", empty("cache", "", "")))
	n.write("pods/a/volumes/kubernetes.io~empty-dir/cache/1", 1)
	before := n.look(time.Now())["a"].Volumes
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h, _ := n.known("a")
	n.measure(ctx, n.pods[0], h, 0)
	if after := n.Get()["a"].Volumes; !slices.Equal(after, before) {
		t.Errorf("it left %+v of %+v", after, before)
	}
}

// TestQuota: the kernel's count counts for pods with users of their own alone.
func TestQuota(t *testing.T) {
	for name, tc := range map[string]struct {
		hostUsers *bool
		counted   bool
		medium    v1.StorageMedium
		want      string
	}{
		"own users":                  {ptr.To(false), true, "", "fsquota"},
		"the host's users":           {nil, true, "", "du"},
		"nothing counted":            {ptr.To(false), false, "", "du"},
		"not on the node's own disk": {ptr.To(false), true, v1.StorageMediumMemory, "du"},
	} {
		n := newNode(t, with("main", empty("cache", tc.medium, "")))
		n.pods[0].Spec.HostUsers = tc.hostUsers
		n.cfg.Quota = func(string) (diskusage.Usage, bool) { return diskusage.Usage{Bytes: 77}, tc.counted }
		n.write("pods/a/volumes/kubernetes.io~empty-dir/cache/1", 1)
		got := n.look(time.Now())["a"].Volumes[0].Used.Bytes
		if len(n.by) != 1 || n.by[0] != tc.want || (got == 77) != (tc.want == "fsquota") {
			t.Errorf("%s: %d bytes by %v; want %s", name, got, n.by, tc.want)
		}
	}
}

// On a tmpfs that is not the volume's own, as below a root directory in memory, the files of a volume
// count and not what is used of the filesystem.
func TestBelowTmpfs(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "numalet-volume-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if room, err := diskusage.Filesystem(dir); err != nil || !room.Tmpfs {
		t.Skipf("%s is on no tmpfs (%v)", dir, err)
	}
	path := filepath.Join(dir, "volume")
	for _, path := range []string{path, filepath.Join(dir, "others")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "file"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := New(Config{})
	for name, onDisk := range map[string]bool{"on disk": true, "in memory, not mounted": false} {
		v, by, _, err := m.volume(t.Context(), volume.Own{Path: path, OnDisk: onDisk}, nil)
		if err != nil || by != "du" || v.Used.Bytes < 1<<20 || v.Used.Bytes >= 2<<20 || v.Used.Inodes != 2 {
			t.Errorf("%s: %+v by %s, %v", name, v.Used, by, err)
		}
	}
}

// TestRun: a pod that begins to be asked for is measured without waiting for a period, and Run
// ends.
func TestRun(t *testing.T) {
	n := newNode(t, with("main", empty("cache", "", "")))
	n.cfg.Looked = func(string, time.Duration) {}
	n.write("pods/a/volumes/kubernetes.io~empty-dir/cache/1", 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if all := n.Get(); len(all["a"].Volumes) == 1 && !all["a"].At.IsZero() {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the pod was not measured")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDisk: all growth counts, also what was freed before the next look.
func TestDisk(t *testing.T) {
	d := disk{}.next(t.TempDir())
	if d.size == 0 || d.grown != 0 {
		t.Fatalf("at first it is %+v", d)
	}
	d = disk{used: 1, size: 100, grown: 7}
	if again := d.next(filepath.Join(t.TempDir(), "gone")); again != d {
		t.Errorf("a disk that cannot be looked at became %+v", again)
	}
	if again := d.next(t.TempDir()); again.grown != 7+again.used-1 {
		t.Errorf("it grew to %+v", again)
	}
}

// A directory of a volume on the node's disk on which somebody has mounted something is not measured.
func TestMounted(t *testing.T) {
	m := &Meter{}
	if _, _, _, err := m.volume(t.Context(), volume.Own{Path: "/proc", OnDisk: true}, nil); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("it is measured, or %v", err)
	}
	_, by, _, err := m.volume(t.Context(), volume.Own{Path: t.TempDir(), OnDisk: true}, nil)
	if err != nil || by != "du" {
		t.Errorf("another is measured with %q, %v", by, err)
	}
}
