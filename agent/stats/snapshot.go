package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/stats/kernel"
)

// Snapshot is what was used at one moment. It is immutable, and so is what it points to.
type Snapshot struct {
	At time.Time
	// Node is without filesystems, which Disks has.
	Node    statsapi.NodeStats
	Machine Machine
	Pods    []Pod // ordered by UID
}

// Machine is what the node has.
type Machine struct {
	Host         Host
	CPUs         CPUs
	Memory, Swap uint64 // bytes
	Counts       kernel.Counts
	Interfaces   []kernel.Interface
}

// Pod is a pod that has a sandbox.
type Pod struct {
	// Stats are without containers, volumes and ephemeral storage.
	Stats      statsapi.PodStats
	Sandbox    string // its id
	Containers []Container
}

// Container is a container that runs.
type Container struct {
	// Stats have of the filesystems the rootfs alone, and of that what is used.
	Stats     statsapi.ContainerStats
	ID, Image string
}
