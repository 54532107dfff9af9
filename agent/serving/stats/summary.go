package stats

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/agent/storage/volume"
)

// roomStats returns these volumes as the kubelet reports them.
func roomStats(all []volume.PodRoom) []statsapi.VolumeStats {
	var out []statsapi.VolumeStats
	for _, v := range all {
		one := statsapi.VolumeStats{Name: v.Volume, FsStats: *fsStats(v.Room, v.Room.Usage(), v.At)}
		if v.Claim != "" {
			one.PVCRef = &statsapi.PVCReference{Name: v.Claim, Namespace: v.Namespace}
		}
		out = append(out, one)
	}
	return out
}

// Summary returns everything known of the node and its pods, as the kubelet's /stats/summary.
func Summary(s *Snapshot, u Usage) statsapi.Summary {
	out := statsapi.Summary{Node: s.Node, Pods: make([]statsapi.PodStats, 0, len(s.Pods))}
	out.Node.Fs = u.Root
	out.Node.Runtime = &statsapi.RuntimeStats{ImageFs: u.Images, ContainerFs: u.Containers}
	for _, p := range s.Pods {
		uid := types.UID(p.Stats.PodRef.UID)
		used := u.Pods[uid]
		stats := p.Stats
		stats.VolumeStats = slices.Concat(volumeStats(used.Volumes), roomStats(u.Rooms[uid]))
		stats.Containers = make([]statsapi.ContainerStats, 0, len(p.Containers))
		for _, c := range p.Containers {
			one := c.Stats
			one.Rootfs = on(u.Containers, one.Rootfs)
			if logs, known := used.Logs[one.Name]; known {
				one.Logs = usedOf(u.Root, logs, used.At)
			}
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

// volumeStats returns the volumes that the agent measures as the kubelet reports them.
func volumeStats(all []localstorage.Volume) []statsapi.VolumeStats {
	var out []statsapi.VolumeStats
	for _, v := range all {
		out = append(out,
			statsapi.VolumeStats{Name: v.Name, FsStats: *fsStats(v.Room, v.Used, v.At)})
	}
	return out
}

// usedOf returns a part of what is used of a filesystem; of an unknown one, only that.
func usedOf(fs *statsapi.FsStats, used diskusage.Usage, at time.Time) *statsapi.FsStats {
	return on(fs, &statsapi.FsStats{Time: metav1.NewTime(at), UsedBytes: &used.Bytes,
		InodesUsed: &used.Inodes})
}

// ephemeral returns what a pod uses of the node's own disk, as the kubelet counts it: writable
// layers and logs of the containers that run, files of the pod, and volumes that are not in memory.
// It is nil until the pod was measured.
func ephemeral(containers []statsapi.ContainerStats, used localstorage.Pod,
	root *statsapi.FsStats) *statsapi.FsStats {
	if root == nil || used.At.IsZero() {
		return nil
	}
	all, at := used.Files, used.At
	add := func(s *statsapi.FsStats) {
		if s == nil {
			return
		}
		all = all.Add(diskusage.Usage{Bytes: ptr.Deref(s.UsedBytes, 0),
			Inodes: ptr.Deref(s.InodesUsed, 0)})
	}
	for _, c := range containers {
		if c.Rootfs != nil {
			add(c.Rootfs)
			add(c.Logs)
		}
	}
	for _, v := range used.Volumes {
		if v.Local {
			all = all.Add(v.Used)
		}
	}
	return usedOf(root, all, at)
}
