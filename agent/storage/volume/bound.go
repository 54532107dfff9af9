package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/ephemeral"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// PVCs reads PVCs and persistent volumes from the API server.
type PVCs interface {
	PVC(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// UpdatePVC writes the status of a PVC that was read, unless another client has changed the PVC
	// since, and returns what is written.
	UpdatePVC(ctx context.Context, was, is *v1.PersistentVolumeClaim) (
		*v1.PersistentVolumeClaim, error)
}

// pvcProtection is the finalizer that keeps a PVC that is being deleted while pods use it.
const pvcProtection = "kubernetes.io/pvc-protection"

// gidAnnotation, on a persistent volume, names the group that owns it.
const gidAnnotation = "pv.beta.kubernetes.io/gid"

// pvcOf returns the name of the volume's PVC; "" if it has none. An ephemeral volume's PVC
// was made for the pod.
func pvcOf(pod *v1.Pod, volume v1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, &volume)
	default:
		return ""
	}
}

// Polls reports whether a volume of the pod depends on what no event announces: a PVC that will
// be bound, a certificate that will be issued.
func Polls(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		u, _ := newUsed(pod, v)
		return u.pvc != "" || u.facts().polled
	})
}

// asked wraps the error of a request. It is operation.Unanswered unless the API server said NotFound or
// Forbidden.
func asked(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return err
	}
	return operation.Unanswered{Err: err}
}

// resolve looks up what the pod's PVCs are bound to, records it, and returns the volumes without
// those whose PVC cannot be used. The errors are in the kubelet's words.
func (n *node) resolve(ctx context.Context, pod *v1.Pod, all []used) ([]used, []error) {
	known, now := n.pvcs.of(pod.UID), map[string]BoundPVC{}
	var failed notProcessed
	answers := n.cfg.ask(ctx, pod, all)
	for i, u := range all {
		if u.pvc == "" {
			continue
		}
		bound, err := answers[i].bound, answers[i].err
		away := operation.IsUnanswered(err)
		had, has := known[u.volume.Name]
		switch {
		case has && away:
			bound, err = had, nil
		case err != nil:
		case has && had.Volume.Name == bound.Volume.Name: // the pod has it with the label that it got
			bound.Label, bound.Labeled = had.Label, had.Labeled
		default:
			bound, err = (labeling{n.cfg}).label(ctx, pod, u.volume.Name, bound)
		}
		if err != nil {
			failed = failed.with(u.volume.Name, err)
			continue
		}
		now[u.volume.Name] = bound
	}
	var errs []error
	if len(known)+len(now) > 0 {
		r, err := n.pvcs.hold(pod.UID, now)
		if err != nil {
			return nil, append(errs, err)
		}
		failed = (labeling{n.cfg}).judge(pod, now, known, r, failed)
		for _, name := range r.taken {
			errs = append(errs, &cri.ObjectError{Err: fmt.Errorf("MountVolume.SetUp failed for "+
				"volume %q : volume uses the ReadWriteOncePod access mode and is already in use by "+
				"another pod", now[name].Volume.Name)})
			delete(now, name)
		}
	}
	if len(failed.volumes) > 0 {
		errs = append(errs, &cri.ObjectError{Err: failed})
	}
	out, more := withPVCs(all, now)
	return out, append(errs, more...)
}

// notProcessed names, in the kubelet's words, the volumes whose PVCs are not known yet, and the
// reasons.
type notProcessed struct{ volumes, why []string }

func (n notProcessed) with(volume string, err error) notProcessed {
	return notProcessed{append(n.volumes, volume), append(n.why, err.Error())}
}

// Error implements error.
func (n notProcessed) Error() string {
	return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=%v, unattached "+
		"volumes=[], failed to process volumes=%v: %s", n.volumes, n.volumes,
		strings.Join(n.why, "; "))
}

// maxAsked is how many PVCs of a pod are asked about at a time.
const maxAsked = 8

// pvcAnswer is the API server's answer about a volume's PVC.
type pvcAnswer struct {
	bound BoundPVC
	err   error
}

// ask asks what the volumes' PVCs are bound to. The answer for a volume without a PVC is empty.
func (c Config) ask(ctx context.Context, pod *v1.Pod, all []used) []pvcAnswer {
	return await.All(all, maxAsked, func(u used) (a pvcAnswer) {
		if u.pvc != "" {
			a.bound, a.err = c.askPVC(ctx, pod, u)
		}
		return a
	})
}

// askPVC asks the API server what the volume's PVC is bound to, and checks that the pod may use
// it.
func (c Config) askPVC(ctx context.Context, pod *v1.Pod, u used) (out BoundPVC, err error) {
	defer wrap(&err, "error processing PVC %s/%s", pod.Namespace, u.pvc)
	if c.PVCs == nil {
		return out, errors.New("there is no API server to get it from; run the agent with " +
			"--kubeconfig")
	}
	pvc, err := c.PVCs.PVC(ctx, pod.Namespace, u.pvc)
	if err != nil {
		return out, asked("failed to fetch PVC from API server", err)
	}
	if err := pvcUsable(pod, u.volume, pvc); err != nil {
		return out, err
	}
	volume, err := c.PVCs.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return out, asked("failed to fetch PV "+pvc.Spec.VolumeName+" from API server", err)
	}
	if err := boundTo(volume, pvc); err != nil {
		return out, err
	}
	if err := component("persistent volume", volume.Name); err != nil {
		return out, err
	}
	if err := modeFits(pod, u.volume.Name, volume); err != nil {
		return out, err
	}
	volume = volume.DeepCopy()
	volume.ManagedFields = nil
	source := ptr.Deref(u.volume.PersistentVolumeClaim, v1.PersistentVolumeClaimVolumeSource{})
	return BoundPVC{PVC: u.pvc, ReadOnly: source.ReadOnly, Volume: volume, read: pvc}, nil
}

// pvcUsable returns why the pod cannot use the PVC, in the kubelet's words; nil: it is bound,
// and the pod may use it.
func pvcUsable(pod *v1.Pod, volume v1.Volume, pvc *v1.PersistentVolumeClaim) error {
	switch {
	case pvc.DeletionTimestamp != nil && !slices.Contains(pvc.Finalizers, pvcProtection):
		return errors.New("PVC is being deleted")
	case pvc.Status.Phase != v1.ClaimBound:
		return errors.New("PVC is not bound")
	case pvc.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	case volume.Ephemeral != nil:
		return ephemeral.VolumeIsForPod(pod, pvc)
	}
	return nil
}

// boundTo returns why the volume is not bound to the PVC; nil: it is, as the PVC is to the
// volume.
func boundTo(volume *v1.PersistentVolume, pvc *v1.PersistentVolumeClaim) error {
	switch ref := volume.Spec.ClaimRef; {
	case ref == nil:
		return fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is "+
			"not yet bound to the claim", volume.Name)
	case ref.UID != pvc.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to "+
			"claim.UID %s", volume.Name, ref.UID, pvc.UID)
	}
	return nil
}

// modeFits returns an error if a container mounts a block volume, or has a file system as a device.
func modeFits(pod *v1.Pod, name string, volume *v1.PersistentVolume) error {
	mode := ptr.Deref(volume.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
	for c := range podspec.All(pod) {
		mounts := slices.ContainsFunc(c.VolumeMounts,
			func(m v1.VolumeMount) bool { return m.Name == name })
		devices := slices.ContainsFunc(c.VolumeDevices,
			func(d v1.VolumeDevice) bool { return d.Name == name })
		switch {
		case mounts && mode != v1.PersistentVolumeFilesystem:
			return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts",
				name, mode)
		case devices && mode != v1.PersistentVolumeBlock:
			return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices",
				name, mode)
		}
	}
	return nil
}

// withPVCs completes volumes whose PVC is known with plugin and persistent volume, and leaves
// out those whose PVC is not known. The errors name types that are not supported.
func withPVCs(all []used, known map[string]BoundPVC) (out []used, errs []error) {
	for _, u := range all {
		bound, has := known[u.volume.Name]
		if u.pvc != "" {
			if !has {
				continue
			}
			is, err := bound.typed()
			if err != nil {
				errs = append(errs, err)
				continue
			}
			u.plugin, u.pv, u.migrated, u.readOnly = is.plugin, is.pv, is.migrated, bound.ReadOnly
			u.read = bound.read
			if bound.Labeled {
				u.label = bound.Label
			}
		}
		out = append(out, u)
	}
	return out, errs
}

// persistentFits returns why the node cannot use a persistent volume, in the kubelet's words; nil:
// it can.
func (c Config) persistentFits(u used) error {
	if u.pv == nil {
		return nil
	}
	if err := storagehelpers.CheckNodeAffinity(u.pv, c.Labels()); err != nil {
		return fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : %w", u.pv.Name, err)
	}
	if len(u.mountOptions()) > 0 && !u.facts().mounted {
		return fmt.Errorf("MountVolume.MountOptionSupport check failed for volume %q : mount "+
			"options are not supported for this volume type", u.pv.Name)
	}
	return nil
}

// Groups returns the groups that the pod's persistent volumes grant to all of its processes,
// ascending. SetUp must have succeeded.
func (c Containers) Groups(pod *v1.Pod) []int64 {
	var out []int64
	for _, bound := range c.pvcs.of(pod.UID) {
		text := bound.Volume.Annotations[gidAnnotation]
		if gid, err := strconv.ParseUint(text, 10, 32); err == nil {
			out = append(out, int64(gid))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mountOptions returns the mount options of a persistent volume and these, ascending and each once.
func (u used) mountOptions(more ...string) []string {
	var all []string
	if u.pv != nil {
		all = u.pv.Spec.MountOptions
		if text, has := u.pv.Annotations[v1.MountOptionAnnotation]; has {
			all = strings.Split(text, ",")
		}
	}
	if u.label != "" {
		more = append(slices.Clip(more), selinux.Option(u.label))
	}
	return sets.List(sets.New(slices.Concat(all, more)...).Delete(""))
}
