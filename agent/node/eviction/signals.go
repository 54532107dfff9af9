package eviction

import (
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Signal names an amount that is left of something, in the words of the configuration.
type Signal string

// The signals (KubeletConfiguration, evictionHard).
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFSAvailable            Signal = "nodefs.available"
	NodeFSInodesFree           Signal = "nodefs.inodesFree"
	ImageFSAvailable           Signal = "imagefs.available"
	ImageFSInodesFree          Signal = "imagefs.inodesFree"
	ContainerFSAvailable       Signal = "containerfs.available"
	ContainerFSInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// The resources of messages that are no names of the API.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// kinds says what each signal is about.
var kinds = map[Signal]struct {
	resource  v1.ResourceName
	condition v1.NodeConditionType
}{
	MemoryAvailable:            {v1.ResourceMemory, v1.NodeMemoryPressure},
	AllocatableMemoryAvailable: {v1.ResourceMemory, v1.NodeMemoryPressure},
	NodeFSAvailable:            {v1.ResourceEphemeralStorage, v1.NodeDiskPressure},
	NodeFSInodesFree:           {resourceInodes, v1.NodeDiskPressure},
	ImageFSAvailable:           {v1.ResourceEphemeralStorage, v1.NodeDiskPressure},
	ImageFSInodesFree:          {resourceInodes, v1.NodeDiskPressure},
	ContainerFSAvailable:       {v1.ResourceEphemeralStorage, v1.NodeDiskPressure},
	ContainerFSInodesFree:      {resourceInodes, v1.NodeDiskPressure},
	PIDAvailable:               {resourcePIDs, v1.NodePIDPressure},
}

// Resource names what is short if the signal's threshold is met.
func (s Signal) Resource() v1.ResourceName { return kinds[s].resource }

// OnDisk reports whether the signal is about a filesystem.
func (s Signal) OnDisk() bool { return kinds[s].condition == v1.NodeDiskPressure }

// Reading is one signal's amount: bytes, inodes or processes.
type Reading struct {
	Available, Capacity int64
}

// Readings are the signals that could be read. A signal without a reading meets no threshold.
type Readings map[Signal]Reading

// Host are facts of the node that a summary does not have.
type Host struct {
	// Memory is that of the machine in bytes; 0: it could not be read, and nothing is known of memory.
	Memory int64
	// PodsCapacity is the limit in bytes of the cgroup of all pods; 0: there is none.
	PodsCapacity int64
}

// Read takes the signals from a summary of the node. Of writable layers that share a filesystem of their
// own with images there are none: as with the kubelet, the thresholds of imagefs hold for them.
func Read(s statsapi.Summary, host Host) Readings {
	out := Readings{}
	if m := s.Node.Memory; m != nil && m.AvailableBytes != nil && host.Memory > 0 {
		out[MemoryAvailable] = Reading{int64(*m.AvailableBytes), host.Memory}
	}
	if pods := podsMemory(s); pods != nil && host.PodsCapacity > 0 && pods.WorkingSetBytes != nil {
		left := host.PodsCapacity - int64(*pods.WorkingSetBytes)
		out[AllocatableMemoryAvailable] = Reading{max(left, 0), host.PodsCapacity}
	}
	out.filesystem(s.Node.Fs, NodeFSAvailable, NodeFSInodesFree)
	if r := s.Node.Runtime; r != nil {
		out.filesystem(r.ImageFs, ImageFSAvailable, ImageFSInodesFree)
		if !apart(s.Node.Fs, r.ImageFs) || apart(r.ImageFs, r.ContainerFs) {
			out.filesystem(r.ContainerFs, ContainerFSAvailable, ContainerFSInodesFree)
		}
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		out[PIDAvailable] = Reading{max(*r.MaxPID-*r.NumOfRunningProcesses, 0), *r.MaxPID}
	}
	return out
}

func (r Readings) filesystem(fs *statsapi.FsStats, bytes, inodes Signal) {
	if fs == nil {
		return
	}
	if fs.AvailableBytes != nil && fs.CapacityBytes != nil {
		r[bytes] = Reading{int64(*fs.AvailableBytes), int64(*fs.CapacityBytes)}
	}
	if fs.InodesFree != nil && fs.Inodes != nil && *fs.Inodes > 0 {
		r[inodes] = Reading{int64(*fs.InodesFree), int64(*fs.Inodes)}
	}
}

// podsMemory returns the memory of the cgroup of all pods; nil: it was not read.
func podsMemory(s statsapi.Summary) *statsapi.MemoryStats {
	for _, c := range s.Node.SystemContainers {
		if c.Name == statsapi.SystemContainerPods {
			return c.Memory
		}
	}
	return nil
}
