package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cgroups/kernel"
)

// Snapshot holds what was used at one moment. It is immutable, with everything it points to.
type Snapshot struct {
	At time.Time
	// Node has no filesystems; Disks provides them.
	Node    statsapi.NodeStats
	Machine Machine
	Pods    []Pod // ordered by UID
}

// Machine describes the machine and its use.
type Machine struct {
	Host         Host
	CPUs         CPUs
	Memory, Swap uint64 // bytes
	Counts       kernel.Counts
	Interfaces   []kernel.Interface
}

// Pod is a pod with a sandbox.
type Pod struct {
	// Stats has no containers, volumes and ephemeral storage.
	Stats      statsapi.PodStats
	Sandbox    string // its id
	Containers []Container
}

// Container is a running container.
type Container struct {
	// Of the filesystems, Stats has only the use of the root filesystem.
	Stats     statsapi.ContainerStats
	ID, Image string
	// Partial: the writable layer was looked at and holds more.
	Partial bool
}
