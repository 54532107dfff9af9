package agent

import (
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/kubeapi/nodes"
	"github.com/numalet/numalet/agent/kubeapi/nrt"
	"github.com/numalet/numalet/internal/mailbox"
)

// newTopology tells schedulers what is free on which NUMA node.
func newTopology(n node, p parts, own *nodes.Nodes, inventory mailbox.Source) *nrt.Writer {
	return nrt.New(nrt.Config{
		Apply: nrt.At(n.kube.Main()), Node: own.Node,
		Facts: func() nrt.Facts {
			h := n.hardware.Get()
			// In the order of a pod's road: what is said of a pod later counts more.
			undecided, pods := p.statuses.Undecided(), p.statuses.List()
			f := nrt.Facts{
				Machine: h.Machine, Policy: n.rules.Policy, Scope: n.rules.Scope,
				Memory: h.Memory, Inventory: p.plugins.Inventory(),
				Held: allocation.TakenBy(n.store.State().List()...), Pods: pods,
				Undecided: undecided,
			}
			if h.CPUs != nil {
				f.CPUs, f.Isolated = h.CPUs.Free(cpuset.New()), h.CPUs.Isolated()
			}
			return f
		},
		Changed: mailbox.Subscribe(n.store.Changes(), p.statuses.Changes(), inventory,
			n.hardware.Changes(), own.Presence()),
		Again:  mailbox.Subscribe(n.kube.Restored()),
		Period: n.cfg.Kubelet.NodeStatusReportFrequency.Duration,
	})
}
