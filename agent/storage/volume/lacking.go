package volume

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// HasPVCs reports whether a container of the pod uses a volume with a PVC, or one that a driver
// makes.
func HasPVCs(pod *v1.Pod) bool {
	all, _ := usedVolumes(pod)
	return slices.ContainsFunc(all, func(u used) bool {
		return u.pvc != "" || u.plugin.driver != nil
	})
}

// Lacking returns why PVCs of the pod cannot become volumes on this node, in the words of SetUp;
// nil: all can. So it does for volumes that drivers make. unknown: the API server did not say, so that
// all may be good. Lacking asks it each time and changes nothing.
func (v *Volumes) Lacking(ctx context.Context, pod *v1.Pod) (unknown bool, err error) {
	all, err := usedVolumes(pod)
	if err != nil {
		return false, err
	}
	known, failed, unsure := map[string]BoundPVC{}, notProcessed{}, notProcessed{}
	answers := v.node.cfg.ask(ctx, pod, all)
	for i, u := range all {
		if u.pvc == "" {
			continue
		}
		one, err := answers[i].bound, answers[i].err
		away := operation.IsUnanswered(err)
		switch {
		case err == nil:
			known[u.volume.Name] = one
		case away, apierrors.IsForbidden(err):
			unsure = unsure.with(u.volume.Name, err)
		default:
			failed = failed.with(u.volume.Name, err)
		}
	}
	if len(failed.volumes) > 0 {
		return false, failed
	}
	bound, errs := withPVCs(all, known)
	var away []error
	for _, u := range bound {
		if err := v.node.cfg.persistentFits(u); err != nil {
			errs = append(errs, err)
			continue
		}
		if u.plugin.driver == nil {
			continue
		}
		err := u.plugin.driver.lacks(ctx, v.node.cfg, pod, u)
		if operation.IsUnanswered(err) {
			away = append(away, u.failed(err))
		} else if err != nil {
			errs = append(errs, u.failed(err))
		}
	}
	if len(errs) > 0 {
		return false, errors.Join(errs...)
	}
	if len(unsure.volumes) > 0 {
		away = append(away, unsure)
	}
	return len(away) > 0, errors.Join(away...)
}
