package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/selinux"
)

// labeling finds out with which SELinux labels volumes are mounted.
type labeling struct{ *Volumes }

// label adds to a PVC of a pod the label that the pod wants its volume to have.
func (v labeling) label(ctx context.Context, pod *v1.Pod, name string, of BoundPVC) (BoundPVC, error) {
	if !v.cfg.SELinux.Enabled() {
		return of, nil
	}
	is, err := v.about(ctx, name, of)
	if err != nil {
		return of, err
	}
	of.Label, err = v.cfg.SELinux.Of(pod, is)
	of.Labeled = of.Label != "" && v.cfg.SELinux.Mounts(of.Volume)
	return of, err
}

// about describes a volume of a pod.
func (v labeling) about(ctx context.Context, name string, of BoundPVC) (selinux.Volume, error) {
	out := selinux.Volume{Name: name, PV: of.Volume}
	u, err := of.typed()
	if err != nil {
		return out, err
	}
	out.Plugin, out.Supports = u.fullName(), u.facts().contexts
	if u.plugin.driver != nil {
		out.Supports, err = u.plugin.driver.contexts(ctx, v.cfg, u)
	}
	return out, err
}

// judge counts the labels of volumes that the pod did not have before, and adds those to failed that
// another pod has with another label. It takes these out of now.
func (v labeling) judge(pod *v1.Pod, now, known map[string]BoundPVC, r rivalry,
	failed notProcessed) notProcessed {
	if !v.cfg.SELinux.Enabled() {
		return failed
	}
	for _, volume := range pod.Spec.Volumes {
		bound, is := now[volume.Name]
		if _, had := known[volume.Name]; !is || had {
			continue
		}
		about := selinux.Volume{Name: volume.Name, PV: bound.Volume, Plugin: bound.plugin()}
		other, differs := r.labels[volume.Name]
		if !differs {
			v.cfg.SELinux.Admitted(about, bound.Label)
			continue
		}
		if err := v.cfg.SELinux.Conflict(about, other, bound.Label); err != nil {
			failed = failed.with(volume.Name, err)
			delete(now, volume.Name)
		}
	}
	return failed
}

// plugin returns the name of the volume's type, with the driver.
func (c BoundPVC) plugin() string {
	is, err := c.typed()
	if err != nil {
		return ""
	}
	return is.fullName()
}
