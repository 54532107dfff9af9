package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Beside reports whether the pod's volumes may be made while its sandbox is created: all of them
// are ordinary, so a sandbox hardly ever waits for them in vain, and this run has not tried to make
// them before.
func (v *Volumes) Beside(pod *v1.Pod) bool {
	return !v.begun(pod.UID) && usual(pod)
}

// Incomplete reports whether a pod with a sandbox, all of whose volumes are ordinary, lacks one of
// them or its directory: the agent may have ended while it made both at the same time.
func (v *Volumes) Incomplete(pod *v1.Pod) (bool, error) {
	if !usual(pod) {
		return false, nil
	}
	dir, err := v.podDir(pod.UID)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(dir, pluginsDir)); errors.Is(err, fs.ErrNotExist) {
		return true, nil // the directory is made before the volumes
	}
	all, err := usedVolumes(pod)
	if err != nil {
		return false, err
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

// usual reports whether all volumes of the pod are ordinary.
func usual(pod *v1.Pod) bool {
	all, err := usedVolumes(pod)
	return err == nil && !slices.ContainsFunc(all, func(u used) bool { return !u.facts().ordinary })
}
