package csinodes

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/storage/volume/csi"
)

// grace is how long a driver has to register after the agent's start. Its pod may have to be pulled
// and started first.
const grace = 10 * time.Minute

// kept returns the entries of an earlier agent that stay in the CSINode: of drivers that have not
// registered since the agent's start and may still do so, within the grace, or after it while the driver
// has a socket in the plugin registry. A kubelet keeps them for ever: it removes a driver only when it
// sees its socket go. A CSINode of another node has none.
func (w *Writer) kept(node *v1.Node, has *storagev1.CSINode, drivers []csi.Node) (
	out []storagev1.CSINodeDriver) {
	if has == nil || !isOf(node, has) {
		return nil
	}
	for _, d := range has.Spec.Drivers {
		registered := slices.ContainsFunc(drivers, func(n csi.Node) bool { return n.Driver == d.Name })
		if registered || w.cfg.Left(d.Name) {
			continue
		}
		if time.Since(w.started) < grace || w.cfg.HasSocket(d.Name) {
			out = append(out, d)
		}
	}
	return out
}

func isOf(node *v1.Node, has *storagev1.CSINode) bool {
	return slices.ContainsFunc(has.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "Node" && o.UID == node.UID
	})
}

// without returns the entries without those that another list has otherwise.
func without(entries, changed []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(entries), func(d storagev1.CSINodeDriver) bool {
		i := slices.IndexFunc(changed, func(o storagev1.CSINodeDriver) bool { return o.Name == d.Name })
		return i >= 0 && (changed[i].NodeID != d.NodeID || !slices.Equal(changed[i].TopologyKeys, d.TopologyKeys))
	})
}
