package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Beside reports whether the pod's volumes may be made while its sandbox is created: all of them are
// at hand, so a sandbox hardly ever waits for them in vain, and this run has not tried to make them
// before.
func (v *Volumes) Beside(pod *v1.Pod) bool {
	all, err := usedVolumes(pod)
	return err == nil && !v.due.begun(pod.UID) && !slices.ContainsFunc(all, func(u used) bool {
		return !u.facts().ordinary && !v.node.isShared(pod, u)
	})
}

// isShareable reports whether a pod can have the volume while another one has it, and nothing of the
// pod depends on it: no group and no label comes with it.
func isShareable(u used) bool {
	return u.pvc != "" && u.plugin.driver != nil && !u.plugin.block && u.label == "" &&
		u.pv.Annotations[gidAnnotation] == ""
}

// isShared reports whether another pod of the node has the volume, so that its driver only has to
// publish it for this one.
func (n *node) isShared(pod *v1.Pod, u used) bool {
	if u.pvc == "" {
		return false
	}
	known, has := n.pvcs.another(pod.Namespace, u.pvc)
	if !has || known.oncePod() {
		return false
	}
	bound, _ := withPVCs([]used{u}, map[string]BoundPVC{u.volume.Name: known})
	return len(bound) > 0 && isShareable(bound[0]) && bound[0].plugin.driver.published(n.cfg, pod, bound[0])
}

// Incomplete reports whether a pod with a sandbox, all of whose volumes may have been made beside it,
// lacks one of them or its directory: the agent may have ended while it made both.
func (v *Volumes) Incomplete(pod *v1.Pod) (bool, error) {
	wants, err := usedVolumes(pod)
	if err != nil {
		return false, nil //nolint:nilerr // no sandbox is made beside what is not supported
	}
	all, errs := withPVCs(wants, v.node.pvcs.of(pod.UID))
	if slices.ContainsFunc(all, func(u used) bool { return !u.facts().ordinary && !isShareable(u) }) {
		return false, nil
	}
	if len(errs) > 0 || len(all) < len(wants) {
		return true, nil // what PVCs are bound to is recorded before the volumes are made
	}
	dir, err := v.node.podDir(pod.UID)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(dir, pluginsDir)); errors.Is(err, fs.ErrNotExist) {
		return true, nil // the directory is made before the volumes
	}
	have, err := v.node.find(dir)
	if err != nil {
		return false, err
	}
	there := byPlace(have)
	return slices.ContainsFunc(v.node.cfg.want(all, false), func(w wanted) bool {
		f, is := there[w.place]
		return w.flaw(f, is) != ""
	}), nil
}
