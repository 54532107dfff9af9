package stats

import (
	"fmt"
	"testing"

	"github.com/numalet/numalet/cgroups/kernel"
)

// Preallocated huge pages are available as memory only if they do not count. What the node uses does
// not have them, whichever version cgroups have.
func TestHugePagesCount(t *testing.T) {
	t.Parallel()
	v1 := map[string]string{"memory/memory.usage_in_bytes": "6144\n",
		"memory/memory.stat": "total_inactive_file 100\n", "cpuacct/cpuacct.usage": "1\n"}
	v2 := map[string]string{"cgroup.controllers": "cpu memory\n", "memory.stat": "inactive_file 100\n"}
	for name, tc := range map[string]struct {
		files  map[string]string
		pages  int // kB
		counts bool
		want   uint64
	}{
		"none":               {v1, 0, true, 10240 - 6044},
		"v1, counted":        {v1, 2, true, 10240 - 6044 - 2048},
		"v1, not counted":    {v1, 2, false, 10240 - 6044},
		"v1, more than left": {v1, 9, true, 0},
		"v2, counted":        {v2, 1, true, 10240 - 6044},
		"v2, not counted":    {v2, 1, false, 10240 - 5020},
	} {
		c := collector(t, &fake{}, t.TempDir())
		proc, err := kernel.NewProc(write(t, map[string]string{
			"meminfo": fmt.Sprintf("MemTotal: 10 kB\nMemFree: 4 kB\nHugetlb: %d kB\n", tc.pages)}))
		if err != nil {
			t.Fatal(err)
		}
		c.cfg.Groups.Groups, c.cfg.Proc = kernel.NewGroups(write(t, tc.files)), proc
		c.cfg.HugePagesCount = tc.counts
		var s Snapshot
		_ = c.node(c.cfg.Groups.Reader(), &s) // nothing else can be read here
		quick, _, _ := c.Kernel(false)
		if got := *s.Node.Memory.AvailableBytes; got != tc.want {
			t.Errorf("%s: %d are available in a snapshot, want %d", name, got, tc.want)
		}
		if got := *quick.Node.Memory.AvailableBytes; got != tc.want {
			t.Errorf("%s: the kernel alone says that %d are available, want %d", name, got, tc.want)
		}
	}
}
