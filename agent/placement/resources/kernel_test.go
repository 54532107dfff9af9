package resources

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
)

// kernel is a cgroup tree, v2 or v1, in a directory. world.runs makes its containers, one for each
// pod.
type kernel struct {
	t     *testing.T
	mount string
	*cgroups.Tree
	legacy   bool
	stubborn bool // updates have no effect
	widened  int  // number of WidenCPUs calls
	memory   int  // number of WidenMems calls
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	k := &kernel{t: t, mount: t.TempDir()}
	k.write(filepath.Join(k.mount, "cgroup.controllers"), "cpuset cpu memory")
	return k.open()
}

func newLegacyKernel(t *testing.T) *kernel {
	t.Helper()
	k := &kernel{t: t, mount: t.TempDir(), legacy: true}
	for _, controller := range []string{"cpu", "cpuacct", "memory"} {
		k.write(filepath.Join(k.mount, controller, "cgroup.procs"), "")
	}
	k.write(filepath.Join(k.mount, "cpuset", "cpuset.cpus"), "0-7")
	k.write(filepath.Join(k.mount, "cpuset", "cpuset.mems"), "0-3")
	return k.open()
}

func (k *kernel) open() *kernel {
	k.t.Helper()
	var err error
	k.Tree, err = cgroups.New(cgroups.Config{
		Mount: k.mount, HugePages: filepath.Join(k.mount, "none"),
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return k
}

func (k *kernel) WidenCPUs() error {
	k.widened++
	return k.Tree.WidenCPUs()
}

func (k *kernel) WidenMems() error {
	k.memory++
	return k.Tree.WidenMems()
}

func (k *kernel) write(file, text string) {
	k.t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// pod returns the path of a file of a pod's cgroup, container that of its container's cgroup. The
// file's name starts with its controller.
func (k *kernel) pod(uid types.UID, file string) string {
	controller := ""
	if k.legacy {
		controller, _, _ = strings.Cut(file, ".")
	}
	return filepath.Join(k.mount, controller, "kubepods", "pod"+string(uid), file)
}

func (k *kernel) container(uid types.UID, file string) string {
	pod := k.pod(uid, file)
	return filepath.Join(filepath.Dir(pod), string(uid)+"-c", file)
}

// limit writes a CPU quota into the files that at names.
func (k *kernel) limit(uid types.UID, at func(types.UID, string) string, l cgroups.CPULimit) {
	k.t.Helper()
	if k.legacy {
		k.write(at(uid, "cpu.cfs_quota_us"), fmt.Sprint(l.Quota))
		k.write(at(uid, "cpu.cfs_period_us"), fmt.Sprint(l.Period))
		return
	}
	k.write(at(uid, "cpu.max"), l.String())
}

// limited returns the CPU quotas in the files.
func (k *kernel) limited(uid types.UID) (pod, container cgroups.CPULimit) {
	k.t.Helper()
	p, err1 := k.FindPod(uid)
	c, err2 := k.FindContainer(uid, string(uid)+"-c")
	pod, err3 := p.CPULimit()
	container, err4 := c.CPULimit()
	if err := errors.Join(err1, err2, err3, err4); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.t.Fatal(err)
	}
	return pod, container
}

// take writes a container's resources, as the runtime does.
func (k *kernel) take(id string, r *runtimeapi.LinuxContainerResources) {
	if k.stubborn {
		return
	}
	uid := types.UID(strings.TrimSuffix(id, "-c"))
	if r.CpusetCpus != "" {
		k.set(uid, r.CpusetCpus)
	}
	if r.CpusetMems != "" {
		k.write(k.container(uid, "cpuset.mems"), r.CpusetMems)
	}
	if pod, container := k.limited(uid); r.CpuQuota > 0 && pod.Quota > 0 &&
		max(r.CpuQuota, container.Quota) > pod.Quota {
		k.t.Errorf("%s gets the quota %d after %s, while its pod has %s", id, r.CpuQuota, container, pod)
	}
	if r.CpuQuota != 0 {
		k.limit(uid, k.container,
			cgroups.CPULimit{Quota: r.CpuQuota, Period: max(r.CpuPeriod, 1000)})
	}
}

// set writes the CPU set as another program does.
func (k *kernel) set(uid types.UID, cpus string) {
	k.t.Helper()
	k.write(k.container(uid, "cpuset.cpus"), cpus)
}

// runsReally does what runs does, with a cgroup.
func (n *world) runsReally(uid types.UID, cpus string) {
	n.runs(uid, cpus, true)
	n.kernel.set(uid, cpus)
}

// replug takes these CPUs offline and brings all others online.
func (n *world) replug(pool *Loop, offline ...int) {
	m := eightCPUs(n.kernel.t, offline...)
	n.lock(func() { n.machine, n.static = m, n.static.On(m) })
	pool.Wake()
	synctest.Wait()
}

func expectUpdates(t *testing.T, n *world, what, want string) {
	t.Helper()
	synctest.Wait()
	if got := n.updates(); got != want {
		t.Errorf("%s: updates %q, want %q", what, got, want)
	}
}

// A foreign change is detected in the kernel and undone through the runtime, which believes that
// nothing has changed.
func TestTheKernelIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := startNode(t, newKernel(t))
		n.specs = map[types.UID]*v1.Pod{"x": asking("x", "2", "1Mi")}
		n.assign("x", 2, 3)
		n.runsReally("x", "2-3")
		n.runsReally("a", "0-1,4-7")
		n.runs("starting", "0-1,4-7", true) // has no cgroup yet
		pool.Wake()
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a minute without changes", "")

		n.kernel.set("x", "0")
		n.kernel.set("a", "")
		time.Sleep(11 * time.Second)
		expectUpdates(t, n, "after changes from outside", "a-c=0-1,4-7 x-c=2-3:-1")
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a minute later", "")
		if got := n.repairs(); got != 2 {
			t.Errorf("%d repairs are counted, want 2", got)
		}

		// What the pool has not done yet itself is no repair.
		n.assign("x", 2)
		pool.Wake()
		expectUpdates(t, n, "a smaller assignment", "a-c=0-1,3-7 starting-c=0-1,3-7 x-c=2:-1")
		if got := n.repairs(); got != 2 {
			t.Errorf("%d repairs are counted, want still 2", got)
		}
	})
}

// A container that keeps its CPUs is updated less and less often, and nobody else gets these CPUs.
func TestAContainerThatDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := startNode(t, newKernel(t))
		n.runsReally("a", "0-7")
		n.lock(func() { n.kernel.stubborn = true })
		n.assign("x", 5)
		for range 3 {
			_, _, err := enter(t.Context(), pool, "x")
			if err == nil || !strings.Contains(err.Error(), `the cgroup has "0-7"`) {
				t.Fatalf("Enter() = %v while another container is on the CPU", err)
			}
		}
		expectUpdates(t, n, "three requests in a moment", "a-c=0-4,6-7")
		time.Sleep(time.Hour)
		synctest.Wait()
		if tries := len(strings.Fields(n.updates())); tries < 10 || tries > 25 {
			t.Errorf("%d tries in an hour, want one in five minutes after the first few", tries)
		}
		n.lock(func() { n.kernel.stubborn = false })
		time.Sleep(6 * time.Minute)
		expectUpdates(t, n, "once it moves", "a-c=0-4,6-7")
		if _, _, err := enter(t.Context(), pool, "x"); err != nil {
			t.Errorf("Enter() = %v, want the CPU", err)
		}
		if got := n.repairs(); got > 0 {
			t.Errorf("%d repairs are counted of what was never right", got)
		}
	})
}

// On cgroup v2 the kernel remembers the sets while CPUs are offline, so no update is needed.
func TestOfflineCPUsThatTheKernelRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := startNode(t, newKernel(t))
		n.assign("x", 2, 3)
		n.runsReally("x", "2-3")
		n.runsReally("a", "0-1,4-7")
		for _, offline := range [][]int{{3}, {3, 7}, {2, 3}, {}} {
			n.replug(pool, offline...)
			expectUpdates(t, n, "a change of the machine", "")
			want := cpuset.New(0, 1, 4, 5, 6, 7).Difference(cpuset.New(offline...))
			if !pool.Shared().Equals(want) {
				t.Errorf("while %v are offline %s are shared, want %s",
					offline, pool.Shared(), want)
			}
		}
	})
}

// On cgroup v1 the kernel removes offline CPUs from every set and does not add them again.
func TestOfflineCPUsThatTheKernelForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := startNode(t, newKernel(t))
		n.assign("x", 2, 3)
		n.runsReally("x", "2-3")
		n.runsReally("a", "0-1,4-7")
		n.kernel.set("x", "2")
		n.kernel.set("a", "0-1,4-6")
		n.replug(pool, 3, 7)
		expectUpdates(t, n, "two CPUs are offline", "")
		widened := n.kernel.widened
		n.replug(pool)
		expectUpdates(t, n, "they are back", "a-c=0-1,4-7 x-c=2-3:-1")
		if n.kernel.widened != widened+1 {
			t.Errorf("the groups above were widened %d times, want once", n.kernel.widened-widened)
		}
		n.replug(pool, 2, 3)
		n.kernel.set("x", "") // its processes were moved
		time.Sleep(time.Minute)
		expectUpdates(t, n, "all CPUs of a container are offline", "")
	})
}

// The groups above may lack CPUs for an unknown reason: after a failure they are widened again.
func TestGroupsAboveAreWidenedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := startNode(t, newKernel(t))
		n.runsReally("a", "0-7")
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		n.lock(func() { n.fail = func(string) error { return errors.New("permission denied") } })
		n.kernel.set("a", "0-3")
		time.Sleep(11 * time.Second)
		n.lock(func() { n.fail = nil })
		time.Sleep(10 * time.Second)
		expectUpdates(t, n, "after a failure", "a-c=0-7")
		if n.kernel.widened != 2 {
			t.Errorf("widened %d times, want at first and after the failure", n.kernel.widened)
		}
	})
}

// A container starts on its online CPUs, and fails to start if none is online.
func TestEnterWhileCPUsAreOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := startNode(t, newKernel(t))
		n.assign("x", 2, 3)
		n.replug(pool, 3)
		place, _, err := enter(t.Context(), pool, "x")
		if want := (cri.Placement{CPUs: "2", Exclusive: true}); err != nil || place != want {
			t.Errorf("Enter() = %+v, %v, want %+v", place, err, want)
		}
		n.replug(pool, 2, 3)
		if place, _, err := enter(t.Context(), pool, "x"); err == nil ||
			!strings.Contains(err.Error(), "own CPUs 2-3 are offline") {
			t.Errorf("Enter() = %+v, %v, want an error that names the CPUs", place, err)
		}
	})
}

// BenchmarkSteadyRound is one round over 200 pods without differences, which an idle node does once
// every cpuManagerReconcilePeriod.
func BenchmarkSteadyRound(b *testing.B) {
	k := &kernel{mount: b.TempDir()}
	write := func(file, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(text), 0o644)); err != nil {
			b.Fatal(err)
		}
	}
	write(filepath.Join(k.mount, "cgroup.controllers"), "cpuset cpu memory")
	var err error
	k.Tree, err = cgroups.New(cgroups.Config{Mount: k.mount, HugePages: k.mount + "/none"})
	if err != nil {
		b.Fatal(err)
	}
	n := &world{real: map[types.UID]cri.Pod{}, seen: map[types.UID]cri.Pod{},
		specs: map[types.UID]*v1.Pod{}}
	for i := range 200 {
		uid := types.UID(fmt.Sprintf("p%d", i))
		n.runs(uid, "0-7", true)
		n.specs[uid] = asking(uid, "500m", "1Mi")
		write(filepath.Join(k.mount, "kubepods", "pod"+string(uid), string(uid)+"-c",
			"cpuset.cpus"), "0-7\n")
	}
	n.machine = eightCPUs(b)
	if n.static, err = cpumanager.NewStatic(n.machine, cpuset.New(0),
		cpumanager.Options{}); err != nil {
		b.Fatal(err)
	}
	pool := New(Config{
		Hardware: n.hardware, State: n.state, Runtime: n, Observer: n, Cgroups: k,
		Period: time.Hour, Pod: n.spec,
		Repaired: func(Kind) {}, Unread: func() {},
	})
	for b.Loop() {
		if err := pool.enforce(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if len(n.journal) > 0 {
		b.Fatalf("updates: %v", n.journal)
	}
}
