package volume

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// Own is a volume that the agent makes of the node's disk or memory, so that what is in it is the pod's use of
// these.
type Own struct {
	Name, Path string
	OnDisk     bool
	// Counted: the kernel may count what is in it.
	Counted bool
}

// OwnOf returns these volumes of a pod, in the order of its spec, below the agent's root directory. Some may not
// be there yet.
func OwnOf(root string, pod *v1.Pod) (out []Own) {
	podDir := filepath.Join(root, podsDir, string(pod.UID))
	for _, volume := range pod.Spec.Volumes {
		u := used{volume: defaulted(volume)}
		var err error
		if u.plugin, err = pluginFor(u.volume); err != nil {
			continue
		}
		if is := u.facts(); is.own {
			out = append(out, Own{volume.Name, u.place().in(podDir), is.onDisk, is.counted})
		}
	}
	return out
}
