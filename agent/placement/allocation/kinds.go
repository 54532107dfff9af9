package allocation

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

// kinds lists what containers can hold, in the order of Container and of files. A new kind is a
// line here and a file of its own with its Holding, total, counts and provider.
var kinds = []*kind{&cpuKind, &addedKind, &memoryKind, &deviceKind, &claimKind, &hardwareKind}

// kind is one kind of resource that containers can hold.
type kind struct {
	name string
	// since is the first version of the state file with this kind. Agents that read only older
	// versions would lose it, so they refuse the file.
	since int
	// first: its provider is asked before those of other kinds.
	first bool
	// provide is nil for a kind that no container holds, whose total follows from holdings of others, and
	// for one that only says more of another kind.
	provide func(*draft) provider
	// size returns how much a container of the pod requests.
	size   func(*v1.Pod, topology.Rules) func(*v1.Container) (items, bytes uint64)
	decode func(raw []byte) (Holding, error)
	// sum adds up what the pods hold. A pod may be listed twice, as recorded and as reserved.
	sum func([]Pod) total
	// none are the counts of no pods.
	none counts
	// needs reports whether the container cannot be created without a holding of this kind; nil:
	// never.
	needs func(*v1.Pod, *v1.Container) bool
	// releases lists what plugins or drivers have to be told of when a pod's holdings change from before
	// to after; nil: nothing. releasing returns what no pod gets until then, of
	// what this kind or others release.
	releases  func(before, after Pod, wants func(resource string) bool) []PendingRelease
	releasing func(PendingRelease) total
}

// Holding is a container's share of one kind. It is never written to.
type Holding interface {
	// Kind returns the kind's name, its key in the state file and in annotations.
	Kind() string
	empty() bool
	// parts describes the holding, resource by resource.
	parts() []string
	json.Marshaler
}

// answered is a Holding that cannot be used before a plugin has allocated it, or a driver prepared
// it.
type answered interface {
	Holding
	ready() bool
	// intent returns the holding without the answers, which are void after a reboot.
	intent() Holding
}

// total counts what some pods hold of one kind together. It is never written to.
type total interface {
	Kind() string
	empty() bool
	equal(Holdings) bool
	// overlaps reports whether both cannot be held at the same time.
	overlaps(Holdings) bool
}

// counts is how many pods hold each item of one kind. It is an immutable value.
type counts interface {
	// change returns the counts after one pod's holdings changed from had to has.
	change(had, has Holdings) counts
	// taken returns everything that is counted, but only the devices of the given resources.
	taken(resources []string) total
	// lasting counts what own has of the resource that only pods counted in lasting have.
	lasting(lasting sum, own Holdings, resource string) int
	// conflict describes what own has that another pod has and only one can have; "": nothing.
	conflict(own Holdings) string
}

// find returns the element of type T, or none. Each kind's typed accessors use it.
func find[T, E any](list []E, none T) T {
	for _, one := range list {
		if t, ok := any(one).(T); ok {
			return t
		}
	}
	return none
}

// kinded is an element of a Container or of Holdings.
type kinded interface {
	Kind() string
	empty() bool
}

// replaced returns the list with this element instead of the present one of its kind, in the order of
// the kinds. An empty element is left out.
func replaced[E kinded](list []E, by E) []E {
	out := make([]E, 0, len(list)+1)
	for _, k := range kinds {
		if k.name == by.Kind() {
			if !by.empty() {
				out = append(out, by)
			}
			continue
		}
		if at := indexOf(list, k.name); at >= 0 {
			out = append(out, list[at])
		}
	}
	return out
}

func indexOf[E kinded](list []E, kind string) int {
	return slices.IndexFunc(list, func(one E) bool { return one.Kind() == kind })
}

// FormatVersion returns the lowest version of a state file that can have every kind.
func FormatVersion() (version int) {
	for _, k := range kinds {
		version = max(version, k.since)
	}
	return version
}

// providersOf returns the providers in the kubelet's order: if two are short, the first one is
// reported.
func providersOf(d *draft) []provider {
	out := make([]provider, 0, len(kinds))
	for _, first := range []bool{true, false} {
		for _, k := range kinds {
			if k.first == first && k.provide != nil {
				out = append(out, k.provide(d))
			}
		}
	}
	return out
}
