package cgroups

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// MissingPod returns the directory that a pod's cgroup should have and that does not exist; "" if
// the cgroup is complete, in whatever class: an earlier agent may have put the pod in another.
func MissingPod(t *Tree, pod *v1.Pod) (missing string) {
	for _, class := range classes() {
		path := podGroup(t.root, class, pod.UID).path(t.driver)
		_, lacks := t.kernel.existing(path, Resources{Shares: MinShares, Memory: Unlimited, Pids: 1})
		switch {
		case lacks == "":
			return ""
		case class == podspec.QOSClass(pod):
			missing = lacks
		}
	}
	return missing
}

// Exists reports whether the cgroup of all pods exists.
func Exists(t *Tree) bool { return exists(t.dir("memory", t.root.child(kubepods)).path) }
