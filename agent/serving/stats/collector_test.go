package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
)

// Of the runtime's answer the snapshot has the agent's pods and their running containers. It also
// has what is left of the machine.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	at := started.Add(time.Minute)
	f := &fake{stats: func(context.Context) (cri.Stats, error) {
		return cri.Stats{Pods: []*runtimeapi.PodSandboxStats{
			countedPod("sandbox-u1", at, counted("id-main", at, 5e9, 100),
				counted("id-exited", at, 1, 1), counted("id-unknown", at, 1, 1)),
			countedPod("old-u1", at, counted("id-before", at, 1, 1)),
			countedPod("sandbox-of-others", at, counted("id-theirs", at, 1, 1)),
		}}, nil
	}}
	web := pod("u1", "web", "main", "exited")
	web.Containers[1].State = cri.ContainerExited
	stopped := pod("u2", "stopped")
	stopped.Sandboxes[0].Ready = false
	c := collector(t, f, t.TempDir(), web, stopped)
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
		t.Fatalf("pods are %+v, want web with main", s.Pods)
	}
	main := s.Pods[0].Containers[0]
	if main.ID != "id-main" || main.Image != "registry.local/main" ||
		*main.Stats.CPU.UsageCoreNanoSeconds != 5e9 || !main.Stats.CPU.Time.Time.Equal(at) {
		t.Errorf("main is %+v", main)
	}
	n := s.Node
	if *n.CPU.UsageCoreNanoSeconds != 9e9 || n.CPU.PSI.Some.Total != 5000 {
		t.Errorf("the node's CPU is %+v", n.CPU)
	}
	// Of 10 kB 6 are used, and 100 bytes of these belong to inactive files.
	if *n.Memory.UsageBytes != 6144 || *n.Memory.WorkingSetBytes != 6044 ||
		*n.Memory.AvailableBytes != 10240-6044 || *n.Swap.SwapUsageBytes != 1024 {
		t.Errorf("the node's memory is %d, working set %d, available %d, swap %d",
			*n.Memory.UsageBytes, *n.Memory.WorkingSetBytes, *n.Memory.AvailableBytes,
			*n.Swap.SwapUsageBytes)
	}
	if n.Network.Name != "eth0" || *n.Network.TxBytes != 30 || *n.Rlimit.MaxPID != 4000 {
		t.Errorf("network is %+v, rlimit %+v", n.Network, n.Rlimit)
	}
	if len(n.SystemContainers) != 1 || n.SystemContainers[0].Name != "pods" ||
		*n.SystemContainers[0].CPU.UsageCoreNanoSeconds != 4e9 {
		t.Errorf("system containers are %+v, want pods: the agent's own cgroup is not seen here",
			n.SystemContainers)
	}
}

// What runs beside pods is reported as what the kubelet calls it, the agent since its start.
func TestSystemContainers(t *testing.T) {
	t.Parallel()
	c := collector(t, &fake{}, t.TempDir())
	dir := write(t, map[string]string{"cgroup.controllers": "cpu memory\n"})
	c.cfg.Groups.Groups = kernel.NewGroups(dir)
	want := map[string]uint64{"kubelet": 1e9, "runtime": 2e9, "misc": 3e9, "pods": 4e9}
	c.cfg.Groups.Daemons = DaemonGroups{Agent: "/agent", Runtime: "/runtime", System: "/system"}
	for group, name := range map[string]string{
		"": "", "agent": "kubelet", "runtime": "runtime", "system": "misc", "kubepods": "pods",
	} {
		at := filepath.Join(dir, group)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("usage_usec %d\n", want[name]/1000)
		if err := os.WriteFile(filepath.Join(at, "cpu.stat"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var s Snapshot
	if err := c.node(c.cfg.Groups.Reader(), &s); err != nil {
		t.Fatal(err)
	}
	for _, one := range s.Node.SystemContainers {
		if got := *one.CPU.UsageCoreNanoSeconds; got != want[one.Name] {
			t.Errorf("%s used %d ns, want %d", one.Name, got, want[one.Name])
		}
		if since := one.StartTime.Time; since.Equal(c.boot) == (one.Name == "kubelet") {
			t.Errorf("%s is since %v, the machine since %v", one.Name, since, c.boot)
		}
		delete(want, one.Name)
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v", want)
	}
}

// Rates are computed from the last two readings unless the runtime reports them.
func TestRates(t *testing.T) {
	t.Parallel()
	at, nanos, own := started, uint64(5e9), (*runtimeapi.UInt64Value)(nil)
	f := &fake{stats: func(context.Context) (cri.Stats, error) {
		c := counted("id-main", at, nanos, 100)
		c.Cpu.UsageNanoCores = own
		return cri.Stats{Pods: []*runtimeapi.PodSandboxStats{countedPod("sandbox-u1", at, c)}}, nil
	}}
	c := collector(t, f, t.TempDir(), pod("u1", "web", "main"))
	var last reading
	rate := func() *uint64 {
		t.Helper()
		var err error
		if last, err = c.read(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		return last.Pods[0].Containers[0].Stats.CPU.UsageNanoCores
	}
	if r := rate(); r != nil {
		t.Errorf("after one reading the rate is %d", *r)
	}
	at, nanos = at.Add(10*time.Second), nanos+5e9
	if r := rate(); r == nil || *r != 5e8 {
		t.Errorf("5 s of CPU time in 10 s is %v, want 500000000", ptr.Deref(r, 0))
	}
	if r := last.Pods[0].Stats.CPU.UsageNanoCores; r == nil || *r != 5e8 {
		t.Errorf("the pod's rate is %v", ptr.Deref(r, 0))
	}
	if r := rate(); r == nil || *r != 5e8 { // the runtime reports the same moment
		t.Errorf("told the same again the rate is %v", ptr.Deref(r, 0))
	}
	at, nanos = at.Add(10*time.Second), 1
	if r := rate(); r != nil {
		t.Errorf("after the counter began anew the rate is %d", *r)
	}
	own = num(7)
	if r := rate(); r == nil || *r != 7 {
		t.Errorf("the runtime's own rate is %v, want 7", ptr.Deref(r, 0))
	}
}

// While the runtime fails, the pods keep their last values and times, and the node's are new.
// Before the first answer there are none.
func TestRuntimeFails(t *testing.T) {
	t.Parallel()
	gone := errors.New("runtime is gone")
	var err error
	f := &fake{stats: func(context.Context) (cri.Stats, error) {
		return cri.Stats{Pods: []*runtimeapi.PodSandboxStats{
			countedPod("sandbox-u1", started, counted("id-main", started, 5e9, 100)),
		}}, err
	}}
	c := collector(t, f, t.TempDir(), pod("u1", "web", "main"))
	err = gone
	none, got := c.read(t.Context(), reading{})
	if none.Snapshot != nil || !errors.Is(got, gone) {
		t.Errorf("before the first answer it told %+v, %v", none.Snapshot, got)
	}
	err = nil
	first, got := c.read(t.Context(), reading{})
	if got != nil {
		t.Fatal(got)
	}
	err = gone
	then, got := c.read(t.Context(), first)
	if !errors.Is(got, gone) || len(then.Pods) != 1 || !then.At.After(first.At) {
		t.Fatalf("then it told %+v, %v", then.Snapshot, got)
	}
	if at := then.Pods[0].Stats.CPU.Time; !at.Time.Equal(started) {
		t.Errorf("what was told of the pod is of %s, want the time of the answer", at)
	}
}

// If the runtime has statistics of containers alone, a pod's come from its cgroup or, without one,
// are the sum of its containers.
func TestContainersAlone(t *testing.T) {
	t.Parallel()
	f := &fake{stats: func(context.Context) (cri.Stats, error) {
		return cri.Stats{Containers: []*runtimeapi.ContainerStats{
			counted("id-main", started, 5e9, 100), counted("id-other", started, 1e9, 20),
			counted("id-else", started, 2e9, 30), counted("id-theirs", started, 9, 9),
		}}, nil
	}}
	c := collector(t, f, t.TempDir(), pod("u1", "web", "main"), pod("u2", "two", "other", "else"))
	s, err := c.Snapshot(t.Context())
	if err != nil || len(s.Pods) != 2 {
		t.Fatalf("pods are %+v, %v", s, err)
	}
	web, two := s.Pods[0].Stats, s.Pods[1].Stats
	if *web.CPU.UsageCoreNanoSeconds != 2e9 || *web.Memory.WorkingSetBytes != 2000 ||
		*web.ProcessStats.ProcessCount != 8 {
		t.Errorf("web has %d and %d, want what its cgroup says",
			*web.CPU.UsageCoreNanoSeconds, *web.Memory.WorkingSetBytes)
	}
	if *two.CPU.UsageCoreNanoSeconds != 3e9 || *two.Memory.WorkingSetBytes != 50 ||
		*two.Swap.SwapUsageBytes != 10 {
		t.Errorf("two has %d and %d, want the sum of its containers",
			*two.CPU.UsageCoreNanoSeconds, *two.Memory.WorkingSetBytes)
	}
}

// The summary combines what was measured on disks with the runtime's statistics of writable layers.
// The short summary has only CPU, memory and swap.
func TestSummary(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := &fake{disk: root, stats: func(context.Context) (cri.Stats, error) {
		return cri.Stats{Pods: []*runtimeapi.PodSandboxStats{
			countedPod("sandbox-u1", started, counted("id-main", started, 5e9, 100)),
		}}, nil
	}}
	c := collector(t, f, root, pod("u1", "web", "main"))
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := Summary(s, Usage{Root: &statsapi.FsStats{}})
	if p := before.Pods[0]; p.VolumeStats != nil || p.EphemeralStorage != nil ||
		*p.Containers[0].Rootfs.UsedBytes != 4096 {
		t.Errorf("before disks were measured the pod has %+v", p)
	}
	c.disks.round(t.Context())
	all := Summary(s, c.disks.Get())
	p := all.Pods[0]
	if p.PodRef != (statsapi.PodReference{Name: "web", Namespace: "default", UID: "u1"}) ||
		!p.StartTime.Time.Equal(started) || *p.ProcessStats.ProcessCount != 4 {
		t.Errorf("the pod is %+v", p)
	}
	if len(p.VolumeStats) != 2 || p.VolumeStats[0].Name != "cache" || p.VolumeStats[1].Name != "key" {
		t.Fatalf("volumes are %+v, want cache and key", p.VolumeStats)
	}
	if v := p.VolumeStats[0]; *v.InodesUsed != 2 || *v.UsedBytes != 5<<10 || *v.CapacityBytes != 1<<20 ||
		!v.Time.Time.Equal(started) {
		t.Errorf("cache is %d inodes, %d bytes of %s", *v.InodesUsed, *v.UsedBytes, v.Time)
	}
	main := p.Containers[0]
	if *main.Logs.InodesUsed != 2 || *main.Logs.CapacityBytes == 0 || *main.Rootfs.UsedBytes != 4096 ||
		*main.Rootfs.CapacityBytes == 0 {
		t.Errorf("main has logs %+v, rootfs %+v", main.Logs, main.Rootfs)
	}
	// The writable layer and the logs of main, the volume on disk, and the pod's own files: as for the
	// kubelet, what is left of containers that do not run does not count.
	if e := p.EphemeralStorage; *e.UsedBytes != 4096+3<<10+5<<10+3<<10 || *e.InodesUsed != 2+2+2+2 {
		t.Errorf("ephemeral storage is %d bytes and %d inodes", *e.UsedBytes, *e.InodesUsed)
	}
	if r := all.Node.Runtime; *r.ImageFs.UsedBytes != 77 || *r.ContainerFs.CapacityBytes == 0 ||
		*all.Node.Fs.CapacityBytes == 0 {
		t.Errorf("filesystems are %+v and %+v", r, all.Node.Fs)
	}
	short := CPUAndMemory(s)
	if p := short.Pods[0]; p.CPU == nil || p.Memory == nil || p.Swap == nil || p.Network != nil ||
		p.ProcessStats != nil || p.Containers[0].CPU == nil || p.Containers[0].Rootfs != nil {
		t.Errorf("the short summary has %+v", p)
	}
	if n := short.Node; n.CPU == nil || n.Network != nil || n.Rlimit != nil || n.Fs != nil {
		t.Errorf("the short summary has of the node %+v", n)
	}
}

// Filesystems are queried if someone asks and a period has passed. Old values stay if that fails.
func TestFilesystemsAreQueriedAnew(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c := collector(t, &fake{disk: root}, root, pod("u1", "web", "main"))
	d := c.disks
	if d.round(t.Context()); d.Get().Images == nil || d.Get().Root == nil || d.Get().Pods["u1"].Name != "web" {
		t.Fatalf("after the first round it tells %+v", d.Get())
	}
	d.usage.Root = nil
	if d.round(t.Context()); d.Get().Root != nil {
		t.Error("within a period the root was queried again")
	}
	d.looked, d.cfg.Runtime = time.Time{}, &fake{}
	if d.round(t.Context()); d.Get().Images == nil || d.Get().Root == nil {
		t.Error("what was known of images is gone after the runtime failed, or the root is not known")
	}
}

// For a reader that is content with it an older summary is not read again.
func TestRecent(t *testing.T) {
	t.Parallel()
	reads := 0
	f := &fake{stats: func(context.Context) (cri.Stats, error) {
		reads++
		return cri.Stats{Pods: []*runtimeapi.PodSandboxStats{countedPod("sandbox-u1", started)}}, nil
	}}
	c := collector(t, f, t.TempDir(), pod("u1", "web", "main"))
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			c.snapshot.readAt = c.snapshot.readAt.Add(-time.Minute)
		} else {
			c.snapshot.readAt = c.snapshot.readAt.Add(-2 * time.Second)
		}
		s, err := c.Recent(t.Context(), 10*time.Second)
		if err != nil || len(s.Pods) != 1 || len(s.Pods[0].VolumeStats) != 2 || reads != want {
			t.Errorf("%d: after %d reads, want %d, there is %+v, %v", i, reads, want, s.Pods, err)
		}
	}
}
