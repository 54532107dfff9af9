package stats

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// Kernel returns what the kernel says now of memory, threads and the room on filesystems, without the
// runtime, which may be the slowest of all when memory runs short. It takes a fraction of a millisecond;
// with pods it also has the memory and the processes of each pod and container that has a cgroup.
func (c *Collector) Kernel(pods bool) (statsapi.Summary, *Snapshot, error) {
	groups, s := c.cfg.Groups.Reader(), &Snapshot{At: time.Now()}
	counts, err := groups.Use("/")
	memory, memoryErr := c.cfg.Proc.Memory()
	ofRoot(&counts, memory)
	s.Machine = Machine{Memory: memory.Total, Counts: counts}
	n := &s.Node
	n.NodeName, n.Memory = c.cfg.Node, memoryStats(counts)
	n.Memory.AvailableBytes = c.available(counts, memory)
	threads, limit, threadsErr := c.cfg.Proc.Threads()
	if threadsErr == nil {
		n.Rlimit = &statsapi.RlimitStats{Time: metav1.NewTime(s.At), MaxPID: &limit,
			NumOfRunningProcesses: &threads}
	}
	if c.cfg.Groups.Pods != "" {
		if all, err := groups.Use(c.cfg.Groups.Pods); err == nil {
			n.SystemContainers = []statsapi.ContainerStats{
				{Name: statsapi.SystemContainerPods, Memory: memoryStats(all)}}
		}
	}
	if pods {
		for _, p := range c.cfg.Running() {
			if len(p.Sandboxes) > 0 && p.Sandboxes[0].Ready {
				s.Pods = append(s.Pods, c.podOf(groups, p))
			}
		}
	}
	return Summary(s, c.disks.room()), s, errors.Join(err, memoryErr, threadsErr)
}

// podOf has no memory if the pod's cgroup cannot be read.
func (c *Collector) podOf(groups *kernel.Reader, p cri.Pod) Pod {
	out := newPod(p)
	paths := c.cfg.Groups.paths(out)
	if paths.Pod == "" {
		return *out
	}
	counts, err := groups.Use(paths.Pod)
	if err != nil {
		return *out
	}
	out.Stats.Memory = memoryStats(counts)
	out.Stats.ProcessStats = &statsapi.ProcessStats{ProcessCount: ptr.To(counts.Processes)}
	for _, one := range p.Containers {
		path := paths.Container(one.ID)
		if one.State != cri.ContainerRunning || path == "" {
			continue
		}
		if counts, err := groups.Use(path); err == nil {
			out.Containers = append(out.Containers, Container{ID: one.ID, Image: one.From.Image,
				Stats: statsapi.ContainerStats{Name: one.Name, Memory: memoryStats(counts)}})
		}
	}
	return *out
}

// room reads the room on the filesystems. Where the runtime has them is of the last look in the
// background, which is repeated if it is old.
func (d *Disks) room() (u Usage) {
	last := d.last()
	if last.Root == nil || time.Since(last.Root.Time.Time) >= filesystemsPeriod {
		await.Wake(d.asked)
	}
	for _, one := range []struct {
		at string
		to **statsapi.FsStats
	}{{d.cfg.Disks.Root, &u.Root}, {last.imagesAt, &u.Images}, {last.containersAt, &u.Containers}} {
		if one.at == "" {
			continue
		}
		if fs, err := filesystem(one.at); err == nil {
			*one.to = fs
		}
	}
	return u
}
