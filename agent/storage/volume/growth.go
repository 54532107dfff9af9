package volume

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// A PVC's volume grows in three steps: a controller makes the volume larger and writes that into
// the persistent volume, the node has the driver make the file system larger, and the node writes
// the PVC's new capacity. The node keeps in memory which volumes it has grown, and what failed: a driver
// may be asked again for a size that the volume has.

// stayNode is the annotation of a PVC whose volume nodes need not expand.
const stayNode = "volume.kubernetes.io/node-expansion-not-required"

// grown holds what the node knows of a volume's growth.
type grown struct {
	size resource.Quantity // that the volume has on this node; zero: it is not known
	// failed: the driver refused the last size for good; unfit: not while the volume is used.
	failed, unfit bool
}

// growth says what to do for a PVC. The zero growth: nothing.
type growth struct {
	to resource.Quantity
	// tracked: the PVC's status says that the node is at work, and gets the outcome.
	tracked bool
	// written: the PVC has the new capacity already, by another node.
	written bool
}

// growthOf decides whether the node has to grow a PVC's volume. It follows the steps of
// Kubernetes' recovery from failed expansion, if the controller does.
func growthOf(pvc *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, here grown) growth {
	const storage = v1.ResourceStorage
	has, want := pvc.Status.Capacity[storage], pv.Spec.Capacity[storage]
	step := pvc.Status.AllocatedResourceStatuses[storage]
	to, tracked := pvc.Status.AllocatedResources[storage]
	if !tracked {
		to = want
	}
	tracked = tracked || step != ""
	_, stays := pvc.Annotations[stayNode]
	many := slices.Contains(pvc.Spec.AccessModes, v1.ReadWriteMany)
	switch {
	case here.unfit || to.IsZero():
		return growth{}
	case has.Cmp(to) >= 0 && step == "": // another node may have done it, and this one not
		if many && !stays && !here.size.IsZero() && here.size.Cmp(to) < 0 {
			return growth{to: to, written: true}
		}
		return growth{}
	case has.Cmp(want) >= 0:
		return growth{}
	case !tracked:
		return growth{to: to}
	case step == v1.PersistentVolumeClaimNodeResizePending,
		step == v1.PersistentVolumeClaimNodeResizeInProgress:
		return growth{to: to, tracked: true}
	default:
		return growth{}
	}
}

// stepped returns the PVC with the note how far the node is.
func stepped(pvc *v1.PersistentVolumeClaim, to v1.ClaimResourceStatus) *v1.PersistentVolumeClaim {
	out := pvc.DeepCopy()
	if out.Status.AllocatedResourceStatuses == nil {
		out.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	out.Status.AllocatedResourceStatuses[v1.ResourceStorage] = to
	return out
}

// ended returns the PVC with its new capacity, without what was said of its growth.
func ended(pvc *v1.PersistentVolumeClaim, size resource.Quantity) *v1.PersistentVolumeClaim {
	out := pvc.DeepCopy()
	if out.Status.Capacity == nil {
		out.Status.Capacity = v1.ResourceList{}
	}
	out.Status.Capacity[v1.ResourceStorage] = size
	delete(out.Status.AllocatedResourceStatuses, v1.ResourceStorage)
	if len(out.Status.AllocatedResourceStatuses) == 0 {
		out.Status.AllocatedResourceStatuses = nil
	}
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions,
		func(c v1.PersistentVolumeClaimCondition) bool {
			return slices.Contains([]v1.PersistentVolumeClaimConditionType{
				v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing,
				v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
			}, c.Type)
		})
	return out
}

// refused returns the PVC with the reason why it did not grow. infeasible: it never will to that
// size, and the controller may go back.
func refused(pvc *v1.PersistentVolumeClaim, why error, infeasible bool,
	now metav1.Time) *v1.PersistentVolumeClaim {
	out := pvc.DeepCopy()
	if infeasible {
		out = stepped(pvc, v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	is := func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError
	}
	at := slices.IndexFunc(out.Status.Conditions, is)
	if at >= 0 && out.Status.Conditions[at].Status == v1.ConditionTrue {
		return out
	}
	out.Status.Conditions = append(slices.DeleteFunc(out.Status.Conditions, is),
		v1.PersistentVolumeClaimCondition{
			Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue,
			LastTransitionTime: now, Message: fmt.Sprintf("failed to expand pvc with %v", why),
		})
	return out
}

// after returns what the node knows after the driver was asked.
func (g grown) after(to growth, said operation.Growth, err error) grown {
	switch {
	case err == nil || said == operation.GrowthUnable && !to.tracked:
		return grown{size: to.to}
	case said == operation.GrowthUnfit:
		g.unfit = true
	case said != operation.GrowthUnknown:
		g.failed = true
	}
	return g
}

// growths holds what the node knows, by persistent volume.
type growths struct {
	mu  sync.Mutex // guards all
	all map[string]grown
}

// of returns what is known of a volume. has is the PVC's capacity, which the volume has when it is
// first looked at.
func (g *growths) of(pv string, has resource.Quantity) grown {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.all[pv]; !known {
		g.all[pv] = grown{size: has}
	}
	return g.all[pv]
}

func (g *growths) put(pv string, now grown) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[pv] = now
}

// keep forgets all volumes but these.
func (g *growths) keep(used func(pv string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.all, func(pv string, _ grown) bool { return !used(pv) })
}
