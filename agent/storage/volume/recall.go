package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/scsi"
	"github.com/numalet/numalet/internal/await"
)

// recalling tells packages csi and scsi what pods' PVCs and specs say of volumes, so that a volume with a
// lost record is known again before anything of it is undone.
type recalling struct{ *Volumes }

// withPVCs tells what is recorded of the PVCs of all pods.
func (v recalling) withPVCs() {
	for pod, all := range v.pvcs.all() {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			u, err := all[name].typed()
			if err != nil {
				continue
			}
			u.volume.Name, u.readOnly = name, all[name].ReadOnly
			if all[name].Labeled {
				u.label = all[name].Label
			}
			v.recall(&v1.Pod{}, pod, u, "the record of the pod's claims, "+pvcsFile)
		}
	}
}

// Recall tells what the spec of a pod says of its volumes, before they are taken back.
func (v *Volumes) Recall(pod *v1.Pod) {
	if all, err := usedVolumes(pod); err == nil {
		all, _ = withPVCs(all, v.pvcs.of(pod.UID))
		recalling{v}.used(pod, all)
	}
}

func (v recalling) used(pod *v1.Pod, all []used) {
	for _, u := range all {
		v.recall(pod, pod.UID, u, "the pod's spec")
	}
}

// recall tells what a volume of a pod is.
func (v recalling) recall(pod *v1.Pod, uid types.UID, u used, from string) {
	switch {
	case u.plugin.name == csiName && v.cfg.CSI != nil:
		if of, err := u.csiVolume(pod); err == nil {
			v.cfg.CSI.Recall(of, uid, from)
		}
	case u.plugin.name == scsi.ISCSIName, u.plugin.name == scsi.FCName:
		v.hostDisks.recall(uid, u)
	}
}

// recall tells what disk a pod has. It needs none of the secrets with which the node logs in.
func (d hostDisks) recall(pod types.UID, u used) {
	var disk scsi.Disk
	var err error
	if u.plugin.name == scsi.FCName {
		disk, err = scsi.NewFC(fcSource(u))
	} else {
		disk, err = scsi.NewISCSI(u.place().name, iscsiSource(u), nil)
	}
	podDir, dirErr := d.podDir(pod)
	if err != nil || dirErr != nil {
		return
	}
	r := scsi.Request{Use: scsi.Use{Pod: pod}, Disk: disk}
	at := u.place().device(podDir)
	if !u.plugin.block {
		r.Volume, at = u.place().name, u.place().in(podDir)
	}
	_, err = os.Lstat(at)
	d.scsi.Recall(r, u.plugin.block && err == nil)
}

// misses reports whether something of the pod's volumes is not known that the API server, or the pod's
// spec, may tell.
func (v recalling) misses(pod *v1.Pod) bool {
	if v.cfg.CSI != nil && len(v.cfg.CSI.Lost(pod.UID)) > 0 {
		return true
	}
	return v.cfg.PVCs != nil && v.withoutPVC(pod)
}

// withoutPVC reports whether the record of what the pod's PVCs are bound to is lost.
func (v recalling) withoutPVC(pod *v1.Pod) bool {
	all, err := usedVolumes(pod)
	known := v.pvcs.of(pod.UID)
	return err == nil && slices.ContainsFunc(all, func(u used) bool {
		_, has := known[u.volume.Name]
		return u.pvc != "" && !has
	})
}

// resolved returns the volumes of a running pod, without those whose PVC is not known. A PVC whose
// record is lost is looked up again, and if the API server does not say what it is bound to, once more
// at the returned time.
func (v recalling) resolved(ctx context.Context, pod *v1.Pod, all []used) ([]used, time.Time) {
	out, _ := withPVCs(all, v.pvcs.of(pod.UID))
	if v.cfg.PVCs == nil || !v.withoutPVC(pod) {
		return out, time.Time{}
	}
	found, errs := v.resolve(ctx, pod, all)
	if len(errs) == 0 {
		return found, time.Time{}
	}
	klog.FromContext(ctx).Info("What the claims of a running pod are bound to is not known: the record "+
		"is lost, and the API server does not say it", "pod", klog.KObj(pod), "err", errors.Join(errs...))
	return out, time.Now().Add(leastAgain)
}

// identify has the volumes of a pod with lost records named, or given up, before the pod's volumes are
// taken back. It fails while the API server does not answer, and at first if it refuses to:
// nothing is undone then.
func (d csiDisks) identify(ctx context.Context, pod types.UID, podDir string,
	which func(csi.Use) bool) error {
	return await.Each(d.cfg.CSI.Lost(pod), -1, func(u csi.Use) error {
		if !which(u) {
			return nil
		}
		of, err := d.persistent(ctx, u)
		if err == nil {
			d.cfg.CSI.Recall(of, pod, "persistent volume "+of.Name)
			return nil
		}
		_, away := errors.AsType[csi.Unanswered](err)
		if away || apierrors.IsForbidden(err) && d.cfg.CSI.Refused(u) {
			return fmt.Errorf("volume %s: its record is lost, and what it is is not known: %w", u.Name, err)
		}
		if d.cfg.CSI.Guess(u) {
			return nil
		}
		return d.forsake(ctx, podDir, u)
	})
}

// persistent reads the persistent volume that a directory of a pod is named after.
func (d csiDisks) persistent(ctx context.Context, u csi.Use) (of csi.Volume, err error) {
	if d.cfg.PVCs == nil {
		return of, errors.New("there is no API server")
	}
	pv, err := d.cfg.PVCs.PersistentVolume(ctx, u.Name)
	if err != nil {
		return of, asked("persistent volume "+u.Name, err)
	}
	is, err := BoundPVC{Volume: pv}.typed()
	if err != nil {
		return of, err
	}
	if is.plugin.name != csiName || is.plugin.block != (u.Device != "") {
		return of, fmt.Errorf("persistent volume %s is none of a CSI driver, or has another volumeMode", u.Name)
	}
	return is.csiVolume(nil)
}

// forsake removes what the agent can of a volume that nothing names.
func (d csiDisks) forsake(ctx context.Context, podDir string, u csi.Use) error {
	if err := d.unmap(ctx, podDir, u); err != nil {
		return err
	}
	if u.Device == "" {
		mounted, err := d.isMounted(u.Target)
		if err == nil && mounted {
			err = d.unmount(ctx, u.Target)
		}
		if err != nil {
			return err
		}
	}
	d.cfg.CSI.Forsake(u)
	return nil
}
