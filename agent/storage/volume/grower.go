package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// Grower has drivers grow volumes, and knows what this node has grown.
type Grower struct {
	*node
	known growths
}

// Grow has the file systems of volumes expanded that were made larger, for pods that run. A driver
// that hangs keeps only its own volumes; the rest goes on with the next call.
func (r *Grower) Grow(ctx context.Context, pods []*v1.Pod) error {
	if r.cfg.PVCs == nil {
		return nil
	}
	var errs []error
	seen := map[string]bool{}
	for u := range r.inUse(pods) {
		if u.pvc == "" || u.plugin.driver == nil || seen[u.pv.Name] || !u.isThere() {
			continue
		}
		seen[u.pv.Name] = true
		errs = append(errs, r.growLater(ctx, u.pod, u.used))
	}
	r.known.keep(func(pv string) bool { return seen[pv] })
	return errors.Join(errs...)
}

// growLater begins to grow a volume if it must, and waits for that only a moment.
func (r *Grower) growLater(ctx context.Context, pod *v1.Pod, u used) error {
	pvc, err := r.cfg.PVCs.PVC(ctx, pod.Namespace, u.pvc)
	if err != nil {
		return err
	}
	pv, err := r.cfg.PVCs.PersistentVolume(ctx, u.pv.Name)
	if err != nil {
		return err
	}
	if growthOf(pvc, pv, r.known.of(pv.Name, pvc.Status.Capacity[v1.ResourceStorage])) == (growth{}) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, measureWait)
	defer cancel()
	return r.calls.do(waiting, "grow "+pv.Name, func() error {
		began := time.Now()
		g := growing{pod: pod, used: u, pvc: pvc, pv: pv}
		err := r.grow(context.WithoutCancel(ctx), g, false)
		r.cfg.did(u, operation.Resize, began, err)
		return err
	})
}

// growing is a PVC's volume that may have to grow.
type growing struct {
	pod  *v1.Pod
	used used
	pvc  *v1.PersistentVolumeClaim
	pv   *v1.PersistentVolume
	was  grown  // what is known of the volume; grow sets it
	to   growth // what it must do; likewise
}

// grow grows a volume if it must. fresh: the volume is being set up.
func (r *Grower) grow(ctx context.Context, g growing, fresh bool) error {
	g.was = r.known.of(g.pv.Name, g.pvc.Status.Capacity[v1.ResourceStorage])
	if g.to = growthOf(g.pvc, g.pv, g.was); g.to == (growth{}) {
		return nil
	}
	if g.used.readOnly {
		r.tellGrowth(g, v1.EventTypeWarning, "FileSystemResizeFailed",
			"MountVolume.NodeExpandVolume failed", "requested read-only file system")
		return nil
	}
	if g.to.tracked {
		var err error
		working := stepped(g.pvc, v1.PersistentVolumeClaimNodeResizeInProgress)
		if g.pvc, err = r.cfg.PVCs.UpdatePVC(ctx, g.pvc, working); err != nil {
			return fmt.Errorf("note that claim %s grows: %w", g.pvc.Name, err)
		}
	}
	said, err := g.used.plugin.driver.expand(ctx, r.cfg, g, fresh)
	r.known.put(g.pv.Name, g.was.after(g.to, said, err))
	return r.tellGrown(ctx, g, said, err)
}

// tellGrown writes into the PVC what came of its growth, and sends events.
func (r *Grower) tellGrown(ctx context.Context, g growing, said operation.Growth, err error) error {
	to, other := g.to, g.pvc.Spec.Resources.Requests[v1.ResourceStorage]
	var now *v1.PersistentVolumeClaim
	switch {
	case err == nil:
		r.tellGrowth(g, v1.EventTypeNormal, "FileSystemResizeSuccessful",
			"MountVolume.NodeExpandVolume succeeded", g.pod.Spec.NodeName)
		if to.written {
			return nil
		}
		now = ended(g.pvc, to.to)
	case said == operation.GrowthUnable && !to.tracked, said == operation.GrowthUnfit && !to.tracked:
		return nil // as the kubelet: the controller did it all, or will when no pod uses the volume
	case said == operation.GrowthUnknown || !to.tracked:
	default:
		gaveUp := g.was.failed && other.Cmp(to.to) != 0 // the user wants another size since
		now = refused(g.pvc, err, said == operation.GrowthInfeasible || gaveUp, metav1.Now())
	}
	if now != nil {
		if _, patchErr := r.cfg.PVCs.UpdatePVC(ctx, g.pvc, now); patchErr != nil {
			err = errors.Join(err, fmt.Errorf("write what claim %s grew to: %w", g.pvc.Name, patchErr))
		}
	}
	if err != nil && said != operation.GrowthUnfit {
		r.cfg.Tell(g.pod, v1.EventTypeWarning, "VolumeResizeFailed", fmt.Sprintf(
			"NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", g.pv.Name, err))
		return err
	}
	return nil
}

// tellGrowth sends an event about a pod and its PVC, in the kubelet's form.
func (r *Grower) tellGrowth(g growing, eventType, reason, what, how string) {
	message := fmt.Sprintf("%s for volume %q %s", what, g.pv.Name, how)
	r.cfg.Tell(g.pod, eventType, reason, message)
	r.cfg.Tell(g.pvc, eventType, reason, message)
}
