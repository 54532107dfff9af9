package stats

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
)

// The kernel alone says the same of memory, threads and filesystems as a whole snapshot, also of pods,
// while the runtime hangs.
func TestKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{disk: t.TempDir(), stats: func(ctx context.Context) (cri.Stats, error) {
			<-ctx.Done()
			return cri.Stats{}, ctx.Err()
		}}
		stopped := pod("u2", "stopped")
		stopped.Sandboxes[0].Ready = false
		c := collector(t, f, t.TempDir(), pod("u1", "web", "main", "new"), stopped, pod("u3", "bare"))
		var whole Snapshot
		if err := c.node(c.cfg.Groups.Reader(), &whole); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s, of, err := c.Kernel(true)
		if err != nil || time.Since(began) > 0 {
			t.Fatalf("it took %v: %v", time.Since(began), err)
		}
		if n := s.Node; *n.Memory.AvailableBytes != *whole.Node.Memory.AvailableBytes ||
			*n.Memory.WorkingSetBytes != *whole.Node.Memory.WorkingSetBytes ||
			*n.Rlimit.MaxPID != *whole.Node.Rlimit.MaxPID || of.Machine.Memory != whole.Machine.Memory ||
			*n.SystemContainers[0].Memory.WorkingSetBytes !=
				*whole.Node.SystemContainers[0].Memory.WorkingSetBytes {
			t.Errorf("the node is %+v, and for a snapshot %+v", n, whole.Node)
		}
		if len(s.Pods) != 2 {
			t.Fatalf("pods are %+v, want web and bare", s.Pods)
		}
		web := s.Pods[0]
		if *web.Memory.WorkingSetBytes != 2000 || *web.ProcessStats.ProcessCount != 8 ||
			len(web.Containers) != 1 || web.Containers[0].Name != "main" ||
			*web.Containers[0].Memory.WorkingSetBytes != 1000 {
			t.Errorf("web is %+v", web)
		}
		if s.Pods[1].Memory != nil {
			t.Errorf("a pod without a cgroup uses %+v", s.Pods[1].Memory)
		}
		if s.Node.Fs == nil || s.Node.Runtime.ImageFs != nil {
			t.Errorf("filesystems before the runtime was asked: %+v, %+v", s.Node.Fs, s.Node.Runtime)
		}
		<-c.disks.asked // in the background
		c.disks.round(t.Context())
		if s, _, _ = c.Kernel(false); s.Node.Runtime.ImageFs == nil || len(c.disks.asked) > 0 {
			t.Errorf("the images' filesystem is %+v, and asked for again", s.Node.Runtime.ImageFs)
		}
		if len(s.Pods) > 0 {
			t.Errorf("pods without being asked: %+v", s.Pods)
		}
		time.Sleep(filesystemsPeriod)
		if c.Kernel(false); len(c.disks.asked) != 1 {
			t.Error("after a period the runtime is not asked anew where images are")
		}
		c.cfg.Groups.Paths = func(types.UID) (cgroups.PodPaths, error) {
			return cgroups.PodPaths{}, errors.New("no such tree")
		}
		if s, _, _ = c.Kernel(true); s.Pods[0].Memory != nil {
			t.Errorf("web uses %+v", s.Pods[0].Memory)
		}
	})
}

// BenchmarkKernel reads the machine that it runs on.
func BenchmarkKernel(b *testing.B) {
	c := fullNode(b)
	proc, err := kernel.NewProc("")
	if err != nil {
		b.Fatal(err)
	}
	c.cfg.Proc, c.cfg.Groups = proc, Groups{Groups: kernel.NewGroups("")}
	for b.Loop() {
		if _, _, err := c.Kernel(false); err != nil {
			b.Fatal(err)
		}
	}
}
