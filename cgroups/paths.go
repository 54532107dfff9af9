package cgroups

import (
	"path"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodPaths are the cgroups of a pod, below the mount point.
type PodPaths struct {
	Pod string // "" if it has none
	// Children are the names of the cgroups inside.
	Children []string
}

// Paths finds the cgroups of a pod and of its containers, for readers.
func (t *Tree) Paths(uid types.UID) (PodPaths, error) {
	if err := checkUID(uid); err != nil {
		return PodPaths{}, err
	}
	for _, class := range classes() {
		g := podGroup(t.root, class, uid)
		dir := t.dir("memory", g).path
		names, err := childDirs(dir)
		if err != nil {
			return PodPaths{}, err
		}
		if len(names) > 0 || exists(dir) {
			return PodPaths{g.path(t.driver), names}, nil
		}
	}
	return PodPaths{}, nil
}

// Container returns the cgroup of a container; "" if it has none (yet).
func (p PodPaths) Container(id string) string {
	for _, name := range p.Children {
		if isContainer(name, id) {
			return path.Join(p.Pod, name)
		}
	}
	return ""
}

// PodsPath returns the cgroup of all pods, below the mount point.
func (t *Tree) PodsPath() string { return qosGroup(t.root, v1.PodQOSGuaranteed).path(t.driver) }
