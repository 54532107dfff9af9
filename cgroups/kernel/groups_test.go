package kernel

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// tree writes the files of a cgroup mount.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Both versions of cgroups give the same counts.
func TestReadCgroup(t *testing.T) {
	t.Parallel()
	want := Counts{
		CPU: CPU{Usage: 5e9, User: 3e9, System: 2e9, Periods: 10, Throttled: 4,
			ThrottledTime: 7e6, Shares: 1024, Quota: 50000, Period: 100000},
		Memory: Memory{Usage: 1000, Peak: 2000, Limit: 4096, RSS: 100, Cache: 600, Mapped: 50,
			Kernel: 70, ActiveFile: 200, InactiveFile: 300, Faults: Faults{11, 2},
			Failures: 5, OutOfMemoryKillings: 1},
		Swap: &Swap{Usage: 30, Limit: 4096}, Processes: 9,
	}
	for _, c := range []struct {
		name     string
		version  int
		files    map[string]string
		pressure Pressure
	}{
		{name: "v1", version: 1, files: map[string]string{
			"cpuacct/pods/a/cpuacct.usage": "5000000000\n",
			"cpuacct/pods/a/cpuacct.stat":  "user 300\nsystem 200\n",
			"cpu/pods/a/cpu.stat": "nr_periods 10\nnr_throttled 4\n" +
				"throttled_time 7000000\n",
			"cpu/pods/a/cpu.shares":                     "1024\n",
			"cpu/pods/a/cpu.cfs_quota_us":               "50000\n",
			"cpu/pods/a/cpu.cfs_period_us":              "100000\n",
			"memory/pods/a/memory.usage_in_bytes":       "1000\n",
			"memory/pods/a/memory.max_usage_in_bytes":   "2000\n",
			"memory/pods/a/memory.limit_in_bytes":       "4096\n",
			"memory/pods/a/memory.memsw.limit_in_bytes": "8192\n",
			"memory/pods/a/memory.failcnt":              "5\n",
			"memory/pods/a/memory.kmem.usage_in_bytes":  "70\n",
			"memory/pods/a/memory.oom_control":          "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
			"memory/pods/a/memory.stat": "rss 1\npgfault 1\ntotal_cache 600\ntotal_rss 100\n" +
				"total_mapped_file 50\ntotal_swap 30\ntotal_pgfault 11\ntotal_pgmajfault 2\n" +
				"total_inactive_file 300\ntotal_active_file 200\n",
			"pids/pods/a/pids.current": "9\n",
		}},
		{name: "v2", version: 2, files: map[string]string{
			"cgroup.controllers": "cpu memory pids\n",
			"pods/a/cpu.stat": "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\n" +
				"nr_periods 10\nnr_throttled 4\nthrottled_usec 7000\n",
			"pods/a/cpu.weight":          "39\n",
			"pods/a/cpu.max":             "50000 100000\n",
			"pods/a/memory.current":      "1000\n",
			"pods/a/memory.peak":         "2000\n",
			"pods/a/memory.max":          "4096\n",
			"pods/a/memory.swap.current": "30\n",
			"pods/a/memory.swap.max":     "4096\n",
			"pods/a/memory.events":       "low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n",
			"pods/a/memory.stat": "anon 100\nfile 600\nkernel 70\nfile_mapped 50\n" +
				"inactive_file 300\nactive_file 200\npgfault 11\npgmajfault 2\n",
			"pods/a/pids.current": "9\n",
			"pods/a/cpu.pressure": "some avg10=1.50 avg60=2.25 avg300=3.00 total=4000\n" +
				"full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
		}, pressure: Pressure{CPU: &statsapi.PSIStats{
			Some: statsapi.PSIData{Total: 4000000, Avg10: 1.5, Avg60: 2.25, Avg300: 3},
			Full: statsapi.PSIData{Total: 5000},
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := NewGroups(tree(t, c.files))
			if g.Version() != c.version {
				t.Errorf("version is %d, want %d", g.Version(), c.version)
			}
			got, err := g.Reader().Read("/pods/a")
			if err != nil {
				t.Fatal(err)
			}
			want := want
			if c.version == 2 {
				want.CPU.Shares = got.CPU.Shares // a weight is less precise
				if s := got.CPU.Shares; s < 990 || s > 1024 {
					t.Errorf("weight 39 is %d shares, want about 1000", s)
				}
			}
			got.At, want.Pressure = time.Time{}, c.pressure
			if !reflect.DeepEqual(got, want) {
				t.Errorf("counts are\n%+v\nwant\n%+v", got, want)
			}
			if set := got.Memory.WorkingSet(); set != 700 {
				t.Errorf("working set is %d, want usage without inactive files: 700", set)
			}
			if _, err := g.Reader().Read("/pods/b"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a cgroup that does not exist: %v, want fs.ErrNotExist", err)
			}
		})
	}
}

// Without a limit the counts have none, in whatever form the kernel reports that, and no swap if it
// is not counted.
func TestNoLimits(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"v1": {
			"memory/a/memory.limit_in_bytes": "9223372036854771712\n", "cpu/a/cpu.cfs_quota_us": "-1\n",
			"cpu/a/cpu.cfs_period_us": "100000\n",
		},
		"v2": {"cgroup.controllers": "", "a/memory.max": "max\n", "a/cpu.max": "max 100000\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := NewGroups(tree(t, files)).Reader().Read("/a")
			if err != nil {
				t.Fatal(err)
			}
			if c.Memory.Limit != 0 || c.CPU.Quota != 0 || c.CPU.Period != 0 || c.Swap != nil {
				t.Errorf("counts have limits: %+v", c)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("some avg10=1.50 avg60=2.25 avg300=3.00 total=4000\nfull avg10=x total\n"))
	f.Add([]byte("usage_usec 5\n\nbroken\nmany fields 1\n"))
	f.Add([]byte(" 18446744073709551616 "))
	f.Add([]byte(" 0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parsePressure(text)
		parseNumber(text)
		var usage, other uint64
		values{"usage_usec": &usage, "fields": &other}.pairs(text)
		if usage > 0 && !bytes.Contains(text, []byte("usage_usec ")) {
			t.Errorf("a number without its key: %d", usage)
		}
	})
}

// Both versions of cgroups report reads, writes and processes, each in its own files.
func TestDevicesAndProcesses(t *testing.T) {
	t.Parallel()
	want := []DeviceIO{{"999:0", 1, 2, 3, 4}, {"999:1", 0, 0, 7, 0}}
	for name, files := range map[string]map[string]string{
		"v1": {
			"blkio/pods/a/blkio.throttle.io_service_bytes_recursive": "999:0 Read 1\n999:0 Write 3\n" +
				"999:0 Sync 4\n999:0 Total 4\n999:1 Write 7\nTotal 11\n",
			"blkio/pods/a/blkio.throttle.io_serviced_recursive": "999:0 Read 2\n999:0 Write 4\nTotal 6\n",
			"memory/pods/a/cgroup.procs":                        "17\n18\n",
			"memory/pods/b/cgroup.procs":                        "",
			"memory/pods/c/cgroup.procs":                        "0\n",
		},
		"v2": {
			"cgroup.controllers": "io\n",
			"pods/a/io.stat": "999:1 rbytes=0 wbytes=7 rios=0 wios=0 dbytes=0 dios=0\n" +
				"999:0 rbytes=1 wbytes=3 rios=2 wios=4 dbytes=9 dios=9\n999:2\n",
			"pods/a/cgroup.procs": "17\n18\n",
			"pods/b/cgroup.procs": "",
			"pods/c/cgroup.procs": "0\n",
		},
	} {
		r := NewGroups(tree(t, files)).Reader()
		if got := r.IO("/pods/a"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if got := r.IO("/pods/d"); len(got) > 0 {
			t.Errorf("%s: a cgroup that does not exist did %+v", name, got)
		}
		for path, want := range map[string]int{"a": 17, "b": 0, "c": 0, "d": 0} {
			if pid, ok := r.Process("/pods/" + path); pid != want || ok != (want > 0) {
				t.Errorf("%s: %s has process %d, %t", name, path, pid, ok)
			}
		}
	}
}
