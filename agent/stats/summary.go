package stats

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/stats/diskusage"
)

// ClaimVolume is a volume of a pod that comes from a claim, with its room.
type ClaimVolume struct {
	Volume           string // its name in the pod
	Namespace, Claim string
	Room             diskusage.Room
}

// claimStats returns these volumes as the kubelet reports them.
func claimStats(all []ClaimVolume) []statsapi.VolumeStats {
	var out []statsapi.VolumeStats
	for _, c := range all {
		used := diskusage.Usage{Bytes: c.Room.Used, Inodes: c.Room.InodesUsed}
		out = append(out, statsapi.VolumeStats{Name: c.Volume, FsStats: *fsStats(c.Room, used),
			PVCRef: &statsapi.PVCReference{Name: c.Claim, Namespace: c.Namespace}})
	}
	return out
}

// Summary returns everything known of the node and its pods, as the kubelet's /stats/summary.
func Summary(s *Snapshot, u Usage) statsapi.Summary {
	out := statsapi.Summary{Node: s.Node, Pods: make([]statsapi.PodStats, 0, len(s.Pods))}
	out.Node.Fs = u.Root
	out.Node.Runtime = &statsapi.RuntimeStats{ImageFs: u.Images, ContainerFs: u.Containers}
	for _, p := range s.Pods {
		used := u.Pods[types.UID(p.Stats.PodRef.UID)]
		stats := p.Stats
		stats.VolumeStats = slices.Concat(used.Volumes, claimStats(u.Claims[types.UID(p.Stats.PodRef.UID)]))
		stats.Containers = make([]statsapi.ContainerStats, 0, len(p.Containers))
		for _, c := range p.Containers {
			one := c.Stats
			one.Rootfs = on(u.Containers, one.Rootfs)
			one.Logs = used.Logs[one.Name]
			stats.Containers = append(stats.Containers, one)
		}
		stats.EphemeralStorage = ephemeral(stats.Containers, used, u.Root)
		out.Pods = append(out.Pods, stats)
	}
	return out
}

// CPUAndMemory returns a summary with only CPUs, memory and swap, which metrics-server asks for.
func CPUAndMemory(s *Snapshot) statsapi.Summary {
	n := s.Node
	out := statsapi.Summary{
		Node: statsapi.NodeStats{NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU,
			Memory: n.Memory, Swap: n.Swap},
		Pods: make([]statsapi.PodStats, 0, len(s.Pods)),
	}
	for _, c := range n.SystemContainers {
		out.Node.SystemContainers = append(out.Node.SystemContainers, cpuAndMemory(c))
	}
	for _, p := range s.Pods {
		stats := statsapi.PodStats{PodRef: p.Stats.PodRef, StartTime: p.Stats.StartTime,
			CPU: p.Stats.CPU, Memory: p.Stats.Memory, Swap: p.Stats.Swap,
			Containers: make([]statsapi.ContainerStats, 0, len(p.Containers))}
		for _, c := range p.Containers {
			stats.Containers = append(stats.Containers, cpuAndMemory(c.Stats))
		}
		out.Pods = append(out.Pods, stats)
	}
	return out
}

func cpuAndMemory(c statsapi.ContainerStats) statsapi.ContainerStats {
	return statsapi.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU,
		Memory: c.Memory, Swap: c.Swap}
}

// on combines the room of a filesystem with the use of a part of it.
func on(fs, used *statsapi.FsStats) *statsapi.FsStats {
	if fs == nil || used == nil {
		return used
	}
	out := *fs
	out.Time, out.UsedBytes, out.InodesUsed = used.Time, used.UsedBytes, used.InodesUsed
	return &out
}

// ephemeral returns what a pod uses of the node's own disk: writable layers, logs, and volumes that
// are not in memory. It is nil until logs and volumes are measured.
func ephemeral(containers []statsapi.ContainerStats, used PodUsage,
	root *statsapi.FsStats) *statsapi.FsStats {
	if root == nil || used.Pod.UID == "" {
		return nil
	}
	bytes, inodes := used.Local.Bytes, used.Local.Inodes
	add := func(s *statsapi.FsStats) {
		if s != nil && s.UsedBytes != nil {
			bytes += *s.UsedBytes
		}
		if s != nil && s.InodesUsed != nil {
			inodes += *s.InodesUsed
		}
	}
	for _, c := range containers {
		add(c.Rootfs)
	}
	for _, logs := range used.Logs {
		add(logs)
	}
	out := *root
	out.UsedBytes, out.InodesUsed = &bytes, &inodes
	return &out
}
