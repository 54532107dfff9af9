package podspec

import (
	"cmp"
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind says how long a container runs.
type Kind int

const (
	Init    Kind = iota // ends before the next container starts
	Sidecar             // an init container that runs as long as the pod (KEP-753)
	Regular
	Ephemeral // added to a running pod; started once, and nothing waits for it
)

// String is "init", "sidecar", "regular" or "ephemeral".
func (k Kind) String() string { return [...]string{"init", "sidecar", "regular", "ephemeral"}[k] }

// IsSidecar reports whether an init container keeps running beside later ones. It is meaningless
// for a regular container, which may have a restart policy too.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Containers yields the init and regular containers of the spec itself, in the order in which they
// start. Ephemeral ones, which hold nothing of the node, are only in All.
func Containers(pod *v1.Pod) iter.Seq2[*v1.Container, Kind] {
	return func(yield func(*v1.Container, Kind) bool) {
		for i := range pod.Spec.InitContainers {
			c, kind := &pod.Spec.InitContainers[i], Init
			if IsSidecar(c) {
				kind = Sidecar
			}
			if !yield(c, kind) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], Regular) {
				return
			}
		}
	}
}

// All yields Containers and then the ephemeral containers.
func All(pod *v1.Pod) iter.Seq2[*v1.Container, Kind] {
	return func(yield func(*v1.Container, Kind) bool) {
		for c, kind := range Containers(pod) {
			if !yield(c, kind) {
				return
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			// Both API types have the same fields in the same order.
			c := (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(c, Ephemeral) {
				return
			}
		}
	}
}

// Name returns the pod's namespace and name.
func Name(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// Compare orders pods by namespace, name and UID.
func Compare(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID))
}

// Target returns the container whose processes an ephemeral container sees; "": it names none, or
// is not ephemeral.
func Target(pod *v1.Pod, name string) string {
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == name {
			return c.TargetContainerName
		}
	}
	return ""
}

// Find returns the container of that name from All; nil if there is none.
func Find(pod *v1.Pod, name string) (*v1.Container, Kind) {
	for c, kind := range All(pod) {
		if c.Name == name {
			return c, kind
		}
	}
	return nil, Init
}

// Peak returns the most of a quantity that the pod has at any time; of returns a container's part.
// An init container runs beside the sidecars before it, regular ones beside all sidecars.
func Peak[N int | uint64](pod *v1.Pod, of func(*v1.Container) N) N {
	return Peaks(pod, func(c *v1.Container) map[string]N { return map[string]N{"": of(c)} })[""]
}

// Peaks is Peak for several quantities at once: those that any container has.
func Peaks[K comparable, N int | uint64](
	pod *v1.Pod, of func(*v1.Container) map[K]N,
) map[K]N {
	lasting, most := map[K]N{}, map[K]N{}
	for c, kind := range Containers(pod) {
		for name, n := range of(c) {
			if kind != Init {
				lasting[name] += n
				n = 0
			}
			most[name] = max(most[name], lasting[name]+n)
		}
	}
	return most
}
