package health

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
)

// reasonOvercommitted is the event's reason for a pod whose memory no longer fits.
const reasonOvercommitted = "MemoryOvercommitted"

// tellOvercommitted reports the pods whose memory no longer fits on its nodes, because a node lost
// memory. It leaves them alone.
func tellOvercommitted(ctx context.Context, cfg Config) {
	h := cfg.Hardware()
	if h.Memory == nil {
		return
	}
	state := cfg.State()
	misfits := h.Memory.Misfits(state.Blocks())
	for _, pod := range state.Pods {
		if len(misfits) == 0 {
			return
		}
		for name, c := range pod.Containers {
			for _, b := range c.Memory() {
				at := slices.Index(misfits, b)
				if at < 0 {
					continue
				}
				misfits = slices.Delete(misfits, at, at+1)
				size := resource.NewQuantity(int64(b.Size), resource.BinarySI)
				message := fmt.Sprintf("NUMA nodes %s have less %s than was promised: "+
					"%s of container %s have no room; it goes on as it is, "+
					"delete the pod to have it placed anew", b.Nodes, b.Resource, size, name)
				klog.FromContext(ctx).Info("Memory is overcommitted",
					"pod", klog.KRef(pod.Namespace, pod.Name), "message", message)
				cfg.Tell(pod.Reference(), v1.EventTypeWarning, reasonOvercommitted, message)
			}
		}
	}
}
