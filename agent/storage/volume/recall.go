package volume

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Types of volumes are told what pods' PVCs and specs say of volumes, so that a volume with a lost record is
// known again before anything of it is undone.

// recallPVCs tells what is recorded of the PVCs of all pods.
func (m *makers) recallPVCs() {
	for pod, all := range m.pvcs.all() {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			u, err := all[name].typed()
			if err != nil {
				continue
			}
			u.volume.Name, u.readOnly = name, all[name].ReadOnly
			if all[name].Labeled {
				u.label = all[name].Label
			}
			m.recall(&v1.Pod{}, pod, u, "the record of the pod's claims, "+pvcsFile)
		}
	}
}

// Recall tells what the spec of a pod says of its volumes, before they are taken back.
func (v *Volumes) Recall(pod *v1.Pod) {
	if all, err := usedVolumes(pod); err == nil {
		all, _ = withPVCs(all, v.node.pvcs.of(pod.UID))
		v.makers.recallUsed(pod, all)
	}
}

// recallUsed tells what a pod's spec says of its volumes.
func (m *makers) recallUsed(pod *v1.Pod, all []used) {
	for _, u := range all {
		m.recall(pod, pod.UID, u, "the pod's spec")
	}
}

// recall tells what a volume of a pod is.
func (m *makers) recall(pod *v1.Pod, uid types.UID, u used, from string) {
	if u.plugin.recall != nil {
		u.plugin.recall(m, pod, uid, u, from)
	}
}

// misses reports whether something of the pod's volumes is not known that the API server, or the pod's
// spec, may tell.
func (n *node) misses(pod *v1.Pod) bool {
	lost := slices.ContainsFunc(plugins(), func(p plugin) bool {
		return p.held != nil && p.held.lost != nil && p.held.lost(n.cfg, pod.UID)
	})
	return lost || n.cfg.PVCs != nil && n.withoutPVC(pod)
}

// withoutPVC reports whether the record of what the pod's PVCs are bound to is lost.
func (n *node) withoutPVC(pod *v1.Pod) bool {
	all, err := usedVolumes(pod)
	known := n.pvcs.of(pod.UID)
	return err == nil && slices.ContainsFunc(all, func(u used) bool {
		_, has := known[u.volume.Name]
		return u.pvc != "" && !has
	})
}

// resolved returns the volumes of a running pod, without those whose PVC is not known. A PVC whose
// record is lost is looked up again, and if the API server does not say what it is bound to, once more
// at the returned time.
func (n *node) resolved(ctx context.Context, pod *v1.Pod, all []used) ([]used, time.Time) {
	out, _ := withPVCs(all, n.pvcs.of(pod.UID))
	if n.cfg.PVCs == nil || !n.withoutPVC(pod) {
		return out, time.Time{}
	}
	found, errs := n.resolve(ctx, pod, all)
	if len(errs) == 0 {
		return found, time.Time{}
	}
	klog.FromContext(ctx).Info("What the claims of a running pod are bound to is not known: the record "+
		"is lost, and the API server does not say it", "pod", klog.KObj(pod), "err", errors.Join(errs...))
	return out, time.Now().Add(leastAgain)
}
