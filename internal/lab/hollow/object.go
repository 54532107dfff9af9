package hollow

import (
	goruntime "runtime"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/kubeapi/nodes"
	nodestatus "github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/version"
	"github.com/numalet/numalet/internal/mailbox"
)

// runtimeName is the name of the container runtime in statuses.
const runtimeName = "hollow"

// orphansPeriod is the time between two searches for undesired pods that hold something: those that
// were deleted while the process did not run.
const orphansPeriod = 30 * time.Second

// keep returns the part that maintains the node's object and lease.
func (n *node) keep() *nodes.Nodes {
	k := &n.shape.cfg.Kubelet
	return nodes.New(nodes.Config{
		Main: n.kube.Main(), Heartbeats: n.kube.Heartbeats(), Register: true,
		Identity: nodes.Identity{
			Name: n.name, Labels: n.shape.labels, Taints: n.shape.taints, Attach: true,
		},
		Periods: nodes.Periods{
			Update: k.NodeStatusUpdateFrequency.Duration,
			Report: k.NodeStatusReportFrequency.Duration,
			Lease:  time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
		},
		Facts:   n.facts,
		Changed: mailbox.Subscribe(n.shape.hardware.Changes()),
		Wrote:   func(f nodestatus.Facts) { n.owned.Wrote(f.Devices) },
		Tell:    n.events.OnNode,
		// All nodes share the connections, and HTTP/2 detects dead ones itself.
		Unanswered: func() {},
		Restored:   n.kube.Restored().Publish,
		Again:      mailbox.Subscribe(n.kube.Restored()),
	})
}

// facts returns the facts for the node's status.
func (n *node) facts() nodestatus.Facts {
	h := n.shape.hardware.Get()
	return nodestatus.Facts{
		Addresses: nodestatus.Addresses{All: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: n.address}, {Type: v1.NodeHostName, Address: n.name},
		}},
		Capacity: h.Capacity, Allocatable: h.Allocatable,
		Devices: n.owned.Devices(n.shape.devices.inventory),
		Info: v1.NodeSystemInfo{
			MachineID: n.name, SystemUUID: n.name, BootID: n.bootID, OSImage: h.Machine.Name(),
			OperatingSystem: "linux", Architecture: goruntime.GOARCH,
			KubeletVersion:          version.Get().GitVersion,
			ContainerRuntimeVersion: runtimeName + "://0.0.0",
		},
	}
}
