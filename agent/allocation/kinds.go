package allocation

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// kinds lists everything that containers can hold, in the order in which a Container and a file have
// it. A further kind is a line here and a file of its own, which has its Holding, its tally, its counts
// and its provider.
var kinds = []*kind{&cpuKind, &memoryKind, &deviceKind}

// kind is one kind of what containers hold.
type kind struct {
	name string
	// since is the version of the state file that has the kind first. An agent that reads older
	// versions alone would lose what pods hold of it, so it refuses the file.
	since int
	// first: the provider is asked before those of other kinds.
	first   bool
	provide func(*draft) provider
	// size tells how much each container of the pod asks for.
	size   func(*v1.Pod) func(*v1.Container) (items, bytes uint64)
	decode func(raw []byte) (Holding, error)
	// sum adds up what pods hold of the kind; pods may be listed as recorded and as reserved.
	sum func([]Pod) tally
	// none counts nothing.
	none counts
	// needs, if set, reports whether the container needs a holding of the kind before it is created.
	needs func(*v1.Container) bool
	// owes, if set, lists what somebody else is to hear of what a pod gives back; wants says for which
	// resources a device plugin may want that. owed is what nobody is given until then.
	owes func(before, after Pod, wants func(resource string) bool) []Owed
	owed func(Owed) tally
}

// Holding is what a container has of one kind: a value, never written to.
type Holding interface {
	// Kind is the kind's name: the key in the state file and in annotations.
	Kind() string
	empty() bool
	// parts says for people what it is, resource by resource.
	parts() []string
	json.Marshaler
}

// answered is a Holding that is of use only once somebody else has answered for it: a plugin that
// allocates, a driver that prepares.
type answered interface {
	Holding
	ready() bool
	// intent is the holding without the answers, which a reboot voids.
	intent() Holding
}

// tally is what some pods have of one kind together: a value, never written to.
type tally interface {
	Kind() string
	empty() bool
	equal(Taken) bool
	// overlaps reports whether both cannot be had at once.
	overlaps(Taken) bool
}

// counts has how many of many pods have each part of what is held of one kind: a value, of which a
// changed one is another.
type counts interface {
	// change is the counts without what one pod had and with what it has.
	change(had, has Taken) counts
	// taken is all that is counted, of devices those of the given resources.
	taken(resources []string) tally
	// firm is how much of a resource own has that only pods in lasting have; these counts have all.
	firm(lasting sum, own Taken, resource string) int
	// conflict says for people what of own is counted that only one can have; "": nothing is.
	conflict(own Taken) string
}

// find is the list's element of that type, or none. The typed accessors of each kind are made of it.
func find[T, E any](list []E, none T) T {
	for _, one := range list {
		if t, ok := any(one).(T); ok {
			return t
		}
	}
	return none
}

// kinded is an element of a Container or a Taken.
type kinded interface {
	Kind() string
	empty() bool
}

// replaced is the list, in the order of the kinds, with this element in place of the one of its kind,
// and without it if it is empty.
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

// FormatVersion is the version of a state file in which each kind has its place.
func FormatVersion() (version int) {
	for _, k := range kinds {
		version = max(version, k.since)
	}
	return version
}

// providersOf lists who hands something out, in the order in which the kubelet asks them: of two
// that are short, the first is told of.
func providersOf(d *draft) []provider {
	out := make([]provider, 0, len(kinds))
	for _, first := range []bool{true, false} {
		for _, k := range kinds {
			if k.first == first {
				out = append(out, k.provide(d))
			}
		}
	}
	return out
}
