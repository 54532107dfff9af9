package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// rootCA is the ConfigMap that Kubernetes keeps in every namespace.
const rootCA = "kube-root-ca.crt"

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

// usual reports whether the containers use no other volumes than empty ones, and files of what the
// pod itself says and of what every pod has: a token and the cluster's CA.
func usual(pod *v1.Pod) bool {
	all, err := usedVolumes(pod)
	return err == nil && !slices.ContainsFunc(all, func(u used) bool {
		switch s := u.volume.VolumeSource; {
		case s.EmptyDir != nil:
			return s.EmptyDir.Medium != v1.StorageMediumDefault
		case s.Projected != nil:
			return slices.ContainsFunc(s.Projected.Sources, rare)
		default:
			return s.DownwardAPI == nil
		}
	})
}

// rare reports whether a source is one that may not be there.
func rare(source v1.VolumeProjection) bool {
	return source.ServiceAccountToken == nil && source.DownwardAPI == nil &&
		(source.ConfigMap == nil || source.ConfigMap.Name != rootCA)
}
