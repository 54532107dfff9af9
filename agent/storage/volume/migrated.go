package volume

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume/csi"
)

// typed returns the volume with its type; a volume of an in-tree type that a driver serves now is
// that driver's.
func (c BoundPVC) typed() (is used, err error) {
	if is.pv, is.migrated, err = csi.Translate(c.Volume); err == nil {
		is.plugin, err = persistentPlugin(is.pv)
	}
	return is, err
}

// newUsed returns a pod's volume with its type, unless it has a PVC; a volume of an in-tree type that a driver
// serves now is that driver's.
func newUsed(pod *v1.Pod, volume v1.Volume) (u used, err error) {
	if u.volume, u.pvc = defaulted(volume), pvcOf(pod, volume); u.pvc != "" {
		return u, nil
	}
	u.pv, err = csi.TranslateInline(u.volume, pod.Namespace)
	switch {
	case err != nil:
	case u.pv != nil:
		u.migrated = true
		u.plugin, err = persistentPlugin(u.pv)
	default:
		u.plugin, err = pluginFor(u.volume)
	}
	u.readOnly = u.facts().readOnly
	return u, err
}
