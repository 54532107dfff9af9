package stats

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
)

// fake is a runtime with fixed answers.
type fake struct {
	stats   func(context.Context) (cri.Stats, error)
	metrics cri.Metrics
	disk    string // the images' filesystem; "": not reported
}

func (f *fake) Stats(ctx context.Context) (cri.Stats, error) { return f.stats(ctx) }
func (f *fake) Metrics(context.Context) (cri.Metrics, error) { return f.metrics, nil }
func (f *fake) ImageFilesystems(context.Context) (
	images, containers *runtimeapi.FilesystemUsage, err error) {
	if f.disk == "" {
		return nil, nil, status.Error(codes.Unimplemented, "no such method")
	}
	u := &runtimeapi.FilesystemUsage{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: f.disk}, UsedBytes: num(77),
		InodesUsed: num(7),
	}
	return u, u, nil
}

func num(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// write writes files into a new directory and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// machine makes the cgroup v2 files and the /proc of a node with a pod of UID u1.
func machine(t testing.TB) (Groups, kernel.Proc) {
	t.Helper()
	mount := write(t, map[string]string{
		"cgroup.controllers": "cpu memory\n", "cpu.stat": "usage_usec 9000000\n",
		"memory.stat":       "anon 500\ninactive_file 100\npgfault 6\n",
		"kubepods/cpu.stat": "usage_usec 4000000\n", "kubepods/memory.current": "4000\n",
		"kubepods/podu1/cpu.stat":       "usage_usec 2000000\nuser_usec 1500000\nnr_throttled 3\n",
		"kubepods/podu1/memory.current": "2000\n", "kubepods/podu1/pids.current": "8\n",
		"kubepods/podu1/id-main/cpu.stat": "usage_usec 1000000\nuser_usec 600000\n" +
			"nr_throttled 2\n",
		"kubepods/podu1/id-main/cpu.max":        "20000 100000\n",
		"kubepods/podu1/id-main/memory.current": "1000\n",
		"kubepods/podu1/id-main/memory.max":     "8192\n",
		"kubepods/podu1/id-main/cgroup.procs":   "9\n",
		"kubepods/podu1/id-main/io.stat":        "999:0 rbytes=1 wbytes=2 rios=3 wios=4\n",
	})
	proc := write(t, map[string]string{
		"stat":      "cpu  1 0 1 1 0 0 0 0 0 0\nbtime 1700000000\n",
		"meminfo":   "MemTotal: 10 kB\nMemFree: 4 kB\nSwapTotal: 4 kB\nSwapFree: 3 kB\n",
		"net/dev":   "a\nb\n  eth0: 10 1 2 0 0 0 0 0 30 1 4 0 0 0 0 0\n",
		"9/net/dev": "a\nb\n  eth0: 5 6 7 8 0 0 0 0 9 10 11 12 0 0 0 0\n",
		"loadavg":   "0.20 0.18 0.12 1/80 11206\n", "sys/kernel/pid_max": "32768\n",
		"sys/kernel/threads-max": "4000\n", "7/cgroup": "0::/agent\n",
		"pressure/cpu": "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n",
	})
	if err := os.Symlink("7", filepath.Join(proc, "self")); err != nil {
		t.Fatal(err)
	}
	p, err := kernel.NewProc(proc)
	if err != nil {
		t.Fatal(err)
	}
	tree := treeOf(map[types.UID]string{"u1": "/kubepods/podu1"})
	return Groups{Groups: kernel.NewGroups(mount), Pods: "/kubepods", Paths: tree}, p
}

// treeOf maps pods to cgroups, each of which contains a cgroup named id-main.
func treeOf(pods map[types.UID]string) func(types.UID) (cgroups.PodPaths, error) {
	return func(uid types.UID) (cgroups.PodPaths, error) {
		if pods[uid] == "" {
			return cgroups.PodPaths{}, nil
		}
		return cgroups.PodPaths{Pod: pods[uid], Children: []string{"id-main"}}, nil
	}
}

// started is the start time of everything in the tests.
var started = time.Unix(1750000000, 0)

// pod returns a pod with a ready sandbox and a running container for each name.
func pod(uid, name string, containers ...string) cri.Pod {
	p := cri.Pod{UID: types.UID(uid), Namespace: "default", Name: name, Sandboxes: []cri.Sandbox{
		{ID: "sandbox-" + uid, Ready: true, CreatedAt: started},
		{ID: "old-" + uid, CreatedAt: started.Add(-time.Hour)},
	}}
	for _, c := range containers {
		p.Containers = append(p.Containers, cri.Container{ID: "id-" + c, Name: c,
			SandboxID: "sandbox-" + uid, State: cri.ContainerRunning, StartedAt: started,
			From: cri.Origin{Image: "registry.local/" + c}})
	}
	return p
}

// counted returns a runtime's statistics of a container.
func counted(id string, at time.Time, nanos, memory uint64) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: id},
		Cpu:        &runtimeapi.CpuUsage{Timestamp: at.UnixNano(), UsageCoreNanoSeconds: num(nanos)},
		Memory: &runtimeapi.MemoryUsage{Timestamp: at.UnixNano(), WorkingSetBytes: num(memory),
			UsageBytes: num(memory + 1), RssBytes: num(memory - 1), PageFaults: num(3)},
		Swap: &runtimeapi.SwapUsage{Timestamp: at.UnixNano(), SwapUsageBytes: num(5),
			SwapAvailableBytes: num(15)},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: at.UnixNano(), UsedBytes: num(4096),
			InodesUsed: num(2)},
	}
}

// countedPod returns a runtime's statistics of a sandbox, the sum of its containers.
func countedPod(id string, at time.Time,
	containers ...*runtimeapi.ContainerStats) *runtimeapi.PodSandboxStats {
	var nanos, memory uint64
	for _, c := range containers {
		nanos += c.Cpu.UsageCoreNanoSeconds.Value
		memory += c.Memory.WorkingSetBytes.Value
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: id},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu: &runtimeapi.CpuUsage{Timestamp: at.UnixNano(), UsageCoreNanoSeconds: num(nanos)},
			Memory: &runtimeapi.MemoryUsage{Timestamp: at.UnixNano(),
				WorkingSetBytes: num(memory)},
			Process:    &runtimeapi.ProcessUsage{ProcessCount: num(4)},
			Containers: containers,
			Network: &runtimeapi.NetworkUsage{Timestamp: at.UnixNano(),
				DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0",
					RxBytes: num(10), TxBytes: num(20)}},
		},
	}
}

// onDisk says that a pod has an emptyDir of 5 KiB and a Secret in memory, and 3 KiB of logs of each
// container, one that is gone and one of its own.
func onDisk(p cri.Pod) localstorage.Pod {
	out := localstorage.Pod{Namespace: p.Namespace, Name: p.Name, At: started,
		Logs:  map[string]diskusage.Usage{"gone": {Bytes: 3 << 10, Inodes: 1}},
		Files: diskusage.Usage{Bytes: 3 << 10, Inodes: 2},
		Volumes: []localstorage.Volume{
			{Name: "cache", Room: diskusage.Room{Capacity: 1 << 20}, Local: true, At: started,
				Used: diskusage.Usage{Bytes: 5 << 10, Inodes: 2}},
			{Name: "key", Used: diskusage.Usage{Bytes: 1 << 10, Inodes: 1}, At: started},
		}}
	for _, c := range p.Containers {
		out.Logs[c.Name] = diskusage.Usage{Bytes: 3 << 10, Inodes: 2}
	}
	return out
}

// collector reads from an invented machine and runtime.
func collector(t testing.TB, f *fake, root string, running ...cri.Pod) *Collector {
	t.Helper()
	used := map[types.UID]localstorage.Pod{}
	for _, p := range running {
		used[p.UID] = onDisk(p)
	}
	groups, proc := machine(t)
	c, err := New(Config{
		Node: "n1", Runtime: f, Running: func() []cri.Pod { return running }, Groups: groups,
		CPUs: func() CPUs { return CPUs{4, 2, 1} }, Host: Host{"b", "m", "s"}, Proc: proc,
		Disks: DisksConfig{Root: root, Pods: func() map[types.UID]localstorage.Pod { return used }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
