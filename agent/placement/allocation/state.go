package allocation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology/podspec"
)

// State is an immutable snapshot of everything that is assigned.
type State struct {
	// Version grows with each commit.
	Version uint64
	Pods    map[types.UID]Pod
	// PendingRelease has at most one entry for each kind, resource and pod, ordered by these.
	PendingReleases []PendingRelease
}

// Pod lists what one pod holds.
type Pod struct {
	UID       types.UID
	Namespace string
	Name      string
	// BootID is the kernel's boot id (/proc/sys/kernel/random/boot_id) of the answers. Under another
	// boot id they are void.
	BootID     string
	Containers map[string]Container
	// Resources are the requests and limits that the pod was allocated since it was admitted; nil: it has
	// those that it was admitted with.
	Resources *podspec.Resources
	// Version is the version of the state that first had this; 0: it was read from a file, or is in
	// no state.
	Version uint64
}

// List returns every pod's assignment, in no order.
func (s State) List() []Pod { return slices.Collect(maps.Values(s.Pods)) }

// With returns the state after the changes.
func (s State) With(changes []Change) State {
	next := State{Version: s.Version + 1, Pods: maps.Clone(s.Pods), PendingReleases: s.PendingReleases}
	if next.Pods == nil {
		next.Pods = map[types.UID]Pod{}
	}
	for _, c := range changes {
		switch {
		case c.Drop != "":
			delete(next.Pods, c.Drop)
		case c.Put.UID != "":
			c.Put.Version = next.Version
			next.Pods[c.Put.UID] = c.Put
		}
		for _, o := range c.Releases {
			next.addRelease(o)
		}
		if c.Released.UID != "" {
			next.endRelease(c.Released)
		}
	}
	return next
}

// Change is one step of a commit. Put replaces a pod's assignment, Drop removes the one of a UID;
// Releases lists those that plugins must hear of then, Released one that a plugin has heard of.
type Change struct {
	Put      Pod
	Drop     types.UID
	Releases []PendingRelease
	Released PendingRelease
}
