package placement

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// reasonDriverCPUs is that of the node's event about CPUs that two may hand out.
const reasonDriverCPUs = "DriverCPUsInUse"

// tellDriverCPUs says at the start which CPUs drivers of resource claims hand out, and which of them
// a container has from before: these stay the container's until it ends.
func tellDriverCPUs(ctx context.Context, n node.Node, s *store.Store) {
	h := n.Hardware.Get()
	if h.CPUs == nil || h.CPUs.Lent().IsEmpty() {
		return
	}
	lent := h.CPUs.Lent()
	klog.FromContext(ctx).Info("Drivers of resource claims hand out CPUs, which no container shares",
		"driverCPUs", lent, "sharedOrExclusive", h.Machine.Online().Difference(lent))
	for _, pod := range s.State().List() {
		both := pod.CPUs().Intersection(lent)
		if both.IsEmpty() {
			continue
		}
		text := fmt.Sprintf("--dra-cpus gives CPUs %s to drivers of resource claims, and pod %s/%s has "+
			"them exclusively from before: it keeps them until it ends, and claims with these CPUs are "+
			"refused until then", both, pod.Namespace, pod.Name)
		klog.FromContext(ctx).Error(nil, text)
		n.Events.OnNode(v1.EventTypeWarning, reasonDriverCPUs, text)
	}
}

// ownDrivers are the node's drivers and, if on, the agent's own of CPUs. That one has nothing to do in
// a call: admission has chosen the CPUs with the pod's other resources, and the ledger has them until
// the pod has ended.
type ownDrivers struct {
	claims.Drivers
	on      bool
	manager *claims.Manager // set before the first call
}

func (o *ownDrivers) isOwn(driver string) bool { return o.on && driver == claim.CPUDriver }

// Usable implements claims.Drivers.
func (o *ownDrivers) Usable(driver string) bool {
	return o.isOwn(driver) || o.Drivers.Usable(driver)
}

// usable lists the usable drivers.
func (o *ownDrivers) usable(others func() []string) func() []string {
	return func() []string {
		out := others()
		if o.on {
			out = append(out, claim.CPUDriver)
		}
		return out
	}
}

// Prepare implements claims.Drivers.
func (o *ownDrivers) Prepare(ctx context.Context, driver string, all []dra.Claim) (
	map[types.UID]dra.Answer, error) {
	if !o.isOwn(driver) {
		return o.Drivers.Prepare(ctx, driver, all)
	}
	out := map[types.UID]dra.Answer{}
	for _, c := range all {
		out[c.UID] = dra.Answer{Devices: o.manager.Allocated(c, driver)}
	}
	return out, nil
}

// Unprepare implements claims.Drivers.
func (o *ownDrivers) Unprepare(ctx context.Context, driver string, all []dra.Claim) (
	map[types.UID]error, error) {
	if !o.isOwn(driver) {
		return o.Drivers.Unprepare(ctx, driver, all)
	}
	out := map[types.UID]error{}
	for _, c := range all {
		out[c.UID] = nil
	}
	return out, nil
}
