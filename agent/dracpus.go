package agent

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// reasonDriverCPUs is that of the node's event about CPUs that two may hand out.
const reasonDriverCPUs = "DriverCPUsInUse"

// tellDriverCPUs says at the start which CPUs drivers of resource claims hand out, and which of them
// a container has from before: these stay the container's until it ends.
func (n node) tellDriverCPUs(ctx context.Context) {
	h := n.hardware.Get()
	if h.CPUs == nil || h.CPUs.Lent().IsEmpty() {
		return
	}
	lent := h.CPUs.Lent()
	klog.FromContext(ctx).Info("Drivers of resource claims hand out CPUs, which no container shares",
		"driverCPUs", lent, "sharedOrExclusive", h.Machine.Online().Difference(lent))
	for _, pod := range n.store.State().List() {
		both := pod.CPUs().Intersection(lent)
		if both.IsEmpty() {
			continue
		}
		text := fmt.Sprintf("--dra-cpus gives CPUs %s to drivers of resource claims, and pod %s/%s has "+
			"them exclusively from before: it keeps them until it ends, and claims with these CPUs are "+
			"refused until then", both, pod.Namespace, pod.Name)
		klog.FromContext(ctx).Error(nil, text)
		n.events.OnNode(v1.EventTypeWarning, reasonDriverCPUs, text)
	}
}
