package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology/podspec"
)

// required lists the volumes and containers that keep a pod from starting: nothing of it starts
// before all volumes are there, or while each container that may be the first lacks something.
type required struct{ volumes, first []requires }

// requires has the name of a volume or a container, and the objects that it requires.
type requires struct {
	name string
	all  []reference
}

// requiredBy reads the spec. Optional objects are not required, nor what a container needs that
// starts after another one, which may make it.
func requiredBy(pod *v1.Pod) (out required) {
	mounted := sets.New[string]()
	for c := range podspec.All(pod) {
		for _, m := range c.VolumeMounts {
			mounted.Insert(m.Name)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if mounted.Has(v.Name) {
			out.volumes = append(out.volumes,
				requires{v.Name, needed(volumeReferences(pod, v.VolumeSource))})
		}
	}
	for c, kind := range podspec.Containers(pod) {
		out.first = append(out.first, requires{c.Name, needed(envReferences(pod, c))})
		if kind != podspec.Regular {
			break
		}
	}
	return out
}

// needed returns the references that are not optional.
func needed(all []reference) []reference {
	return slices.DeleteFunc(all, func(r reference) bool { return r.optional })
}
