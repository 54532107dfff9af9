package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/selinux"
)

// labeling finds out with which SELinux labels volumes are mounted.
type labeling struct{ cfg Config }

// label adds to a PVC of a pod the label that the pod wants its volume to have.
func (l labeling) label(ctx context.Context, pod *v1.Pod, name string, of BoundPVC) (BoundPVC, error) {
	if !l.cfg.SELinux.Enabled() {
		return of, nil
	}
	is, err := l.about(ctx, name, of)
	if err != nil {
		return of, err
	}
	of.Label, err = l.cfg.SELinux.Of(pod, is)
	of.Labeled = of.Label != "" && l.cfg.SELinux.Mounts(of.Volume)
	return of, err
}

// about describes a volume of a pod.
func (l labeling) about(ctx context.Context, name string, of BoundPVC) (selinux.Volume, error) {
	out := selinux.Volume{Name: name, PV: of.Volume}
	u, err := of.typed()
	if err != nil {
		return out, err
	}
	out.Plugin, out.Supports = u.fullName(), u.facts().contexts
	if u.plugin.driver != nil {
		out.Supports, err = u.plugin.driver.contexts(ctx, l.cfg, u)
	}
	return out, err
}

// judge counts the labels of volumes that the pod did not have before, and adds those to failed that
// another pod has with another label. It takes these out of now.
func (l labeling) judge(pod *v1.Pod, now, known map[string]BoundPVC, r rivalry,
	failed notProcessed) notProcessed {
	if !l.cfg.SELinux.Enabled() {
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
			l.cfg.SELinux.Admitted(about, bound.Label)
			continue
		}
		if err := l.cfg.SELinux.Conflict(about, other, bound.Label); err != nil {
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
