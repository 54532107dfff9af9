package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Beside reports whether the pod's volumes may be made while its sandbox is: all of them can be had
// for any pod, so that hardly ever a sandbox waits for them in vain, and none was missing before.
func (v *Volumes) Beside(pod *v1.Pod) bool {
	return !v.begun(pod.UID) && usual(pod)
}

// Incomplete reports whether volumes of a pod with a sandbox are not there, or the directory that it
// has without any, because the agent ended while both were made.
func (v *Volumes) Incomplete(pod *v1.Pod) (bool, error) {
	if !usual(pod) {
		return false, nil
	}
	dir, err := v.podDir(pod.UID)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(dir, pluginsDir)); errors.Is(err, fs.ErrNotExist) {
		return true, nil // it is made before the volumes, if there are any
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
	return slices.ContainsFunc(want(all), func(w wanted) bool {
		f, is := there[w.place]
		return w.flaw(f, is) != ""
	}), nil
}

// usual reports whether any pod could have the volumes of this one at any time: none of them is made
// of something that can be missing.
func usual(pod *v1.Pod) bool {
	all, err := usedVolumes(pod)
	return err == nil && !slices.ContainsFunc(all, func(u used) bool { return !u.look().ordinary })
}
