package stats

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
)

// known holds the agent's pods with a ready sandbox, and their running containers.
type known struct {
	pods       []cri.Pod
	sandboxes  map[string]int // of pods, by sandbox id
	containers map[string]member
}

type member struct {
	pod int // index in known.pods
	cri.Container
}

// index takes the newest sandbox of each pod if it is ready, and the newest container of each name
// if it runs.
func index(pods []cri.Pod) known {
	k := known{pods, map[string]int{}, map[string]member{}}
	for i, p := range pods {
		if len(p.Sandboxes) == 0 || !p.Sandboxes[0].Ready {
			continue
		}
		k.sandboxes[p.Sandboxes[0].ID] = i
		seen := map[string]bool{}
		for _, c := range p.Containers {
			if !seen[c.Name] && c.State == cri.ContainerRunning {
				k.containers[c.ID] = member{i, c}
			}
			seen[c.Name] = true
		}
	}
	return k
}

// podReader builds pods from the runtime's statistics. If the runtime has none of pods, it reads
// the pod's cgroup or, without one, sums up the containers.
type podReader struct {
	running known
	reader  *kernel.Reader
	groups  *Groups
}

func (r *podReader) pods(counted cri.Stats) []Pod {
	if counted.Pods == nil {
		return r.byContainers(counted.Containers)
	}
	all := make([]*Pod, len(r.running.pods))
	for _, one := range counted.Pods {
		i, ok := r.running.sandboxes[one.GetAttributes().GetId()]
		if !ok { // another agent's, or it has just appeared or gone
			continue
		}
		p := newPod(r.running.pods[i])
		linux := one.GetLinux()
		s := &p.Stats
		s.CPU, s.Memory, s.IO = cpu(linux.GetCpu()), memory(linux.GetMemory()), io(linux.GetIo())
		s.Network = podNetwork(linux.GetNetwork())
		if n := value(linux.GetProcess().GetProcessCount()); n != nil {
			s.ProcessStats = &statsapi.ProcessStats{ProcessCount: n}
		}
		for _, c := range linux.GetContainers() {
			r.add(p, i, c)
		}
		all[i] = p
	}
	return r.complete(all)
}

// byContainers adds up the statistics of containers, for a runtime without statistics of pods.
func (r *podReader) byContainers(counted []*runtimeapi.ContainerStats) []Pod {
	all := make([]*Pod, len(r.running.pods))
	for _, i := range r.running.sandboxes {
		all[i] = newPod(r.running.pods[i])
	}
	for _, c := range counted {
		if m, ok := r.running.containers[c.GetAttributes().GetId()]; ok {
			r.add(all[m.pod], m.pod, c)
		}
	}
	return r.complete(all)
}

func newPod(p cri.Pod) *Pod {
	return &Pod{Sandbox: p.Sandboxes[0].ID, Stats: statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		StartTime: metav1.NewTime(p.Sandboxes[0].CreatedAt),
	}}
}

// add adds a container to its pod.
func (r *podReader) add(p *Pod, pod int, c *runtimeapi.ContainerStats) {
	m, ok := r.running.containers[c.GetAttributes().GetId()]
	if !ok || m.pod != pod {
		return
	}
	out := Container{ID: m.ID, Image: m.From.Image, Stats: statsapi.ContainerStats{
		Name: m.Name, StartTime: metav1.NewTime(m.StartedAt), CPU: cpu(c.GetCpu()),
		Memory: memory(c.GetMemory()), IO: io(c.GetIo()), Swap: swap(c.GetSwap()),
	}}
	if w := c.GetWritableLayer(); w != nil {
		out.Stats.Rootfs = &statsapi.FsStats{Time: fromNanos(w.GetTimestamp()),
			UsedBytes: value(w.GetUsedBytes()), InodesUsed: value(w.GetInodesUsed())}
	}
	p.Containers = append(p.Containers, out)
}

func (r *podReader) complete(all []*Pod) []Pod {
	out := make([]Pod, 0, len(all))
	for _, p := range all {
		if p == nil {
			continue
		}
		if p.Stats.CPU == nil || p.Stats.Memory == nil {
			if !r.fromGroup(p) {
				sum(p)
			}
		}
		swapOf(p)
		out = append(out, *p)
	}
	return out
}

// fromGroup fills in the pod from its cgroup, and reports whether it could be read.
func (r *podReader) fromGroup(p *Pod) bool {
	paths := r.groups.paths(p)
	if paths.Pod == "" {
		return false
	}
	counts, err := r.reader.Read(paths.Pod)
	if err != nil {
		return false
	}
	s := &p.Stats
	s.CPU, s.Memory, s.IO = cpuStats(counts), memoryStats(counts), ioStats(counts)
	s.ProcessStats = &statsapi.ProcessStats{ProcessCount: &counts.Processes}
	return true
}
