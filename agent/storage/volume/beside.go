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
	return err == nil && !v.begun(pod.UID) && !slices.ContainsFunc(all, func(u used) bool {
		return !u.facts().ordinary && !v.csi.isShared(pod, u)
	})
}

// Incomplete reports whether a pod with a sandbox, all of whose volumes may have been made beside it,
// lacks one of them or its directory: the agent may have ended while it made both.
func (v *Volumes) Incomplete(pod *v1.Pod) (bool, error) {
	wants, err := usedVolumes(pod)
	if err != nil {
		return false, nil //nolint:nilerr // no sandbox is made beside what is not supported
	}
	all, errs := withPVCs(wants, v.pvcs.of(pod.UID))
	if slices.ContainsFunc(all, func(u used) bool { return !u.facts().ordinary && !isShareable(u) }) {
		return false, nil
	}
	if len(errs) > 0 || len(all) < len(wants) {
		return true, nil // what PVCs are bound to is recorded before the volumes are made
	}
	dir, err := v.podDir(pod.UID)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(dir, pluginsDir)); errors.Is(err, fs.ErrNotExist) {
		return true, nil // the directory is made before the volumes
	}
	have, err := v.find(dir)
	if err != nil {
		return false, err
	}
	there := byPlace(have)
	return slices.ContainsFunc(v.cfg.want(all, false), func(w wanted) bool {
		f, is := there[w.place]
		return w.flaw(f, is) != ""
	}), nil
}
