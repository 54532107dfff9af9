package allocation

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// PendingRelease lists what a pod no longer holds but a plugin has not been told of yet. No other pod gets it
// until then. The commit that takes it from the pod adds it to the state.
type PendingRelease struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Kind is "" for devices, of which alone releases are in files of version 3.
	Kind     string   `json:"kind,omitempty"`
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"` // in natural order
}

// Entry is the key of the release in a Ledger. No pod has that UID.
func (o PendingRelease) Entry() types.UID {
	return types.UID("owed\x00" + o.Kind + "\x00" + o.Resource + "\x00" + string(o.UID))
}

// Holdings returns the devices, which no pod gets, and the hardware that they are.
func (o PendingRelease) Holdings() (out Holdings) {
	of := cmp.Or(o.Kind, deviceKind.name)
	for _, k := range kinds {
		if k.name == of || k == &hardwareKind && of == deviceKind.name {
			out = out.With(k.releasing(o))
		}
	}
	return out
}

// ReleasesOf lists the releases that become pending when a pod's holdings change from before to after. wants reports
// whether the device plugin of a resource may want to be told.
func ReleasesOf(before, after Pod, wants func(resource string) bool) (out []PendingRelease) {
	for _, k := range kinds {
		if k.releases != nil {
			out = append(out, k.releases(before, after, wants)...)
		}
	}
	slices.SortFunc(out, compareReleases)
	return out
}

func releasesDevices(before, after Pod, wants func(resource string) bool) (out []PendingRelease) {
	kept := deviceIDsOf([]Pod{after})
	for resource, ids := range deviceIDsOf([]Pod{before}) {
		lost := ids.Difference(kept[resource])
		if lost.Len() == 0 || !wants(resource) {
			continue
		}
		out = append(out, PendingRelease{
			UID: before.UID, Namespace: before.Namespace, Name: before.Name, Resource: resource,
			IDs: natural(lost),
		})
	}
	return out
}

func natural(ids sets.Set[string]) []string {
	return slices.SortedFunc(maps.Keys(ids), devicemanager.CompareIDs)
}

// addRelease adds ids to an entry.
func (s *State) addRelease(o PendingRelease) {
	s.putRelease(o, sets.New(o.IDs...).Insert(s.findRelease(o).IDs...))
}

// endRelease removes ids from an entry.
func (s *State) endRelease(o PendingRelease) {
	s.putRelease(o, sets.New(s.findRelease(o).IDs...).Delete(o.IDs...))
}

// PutRelease replaces the entry of a pod and resource; without ids it removes it.
func (s *State) PutRelease(o PendingRelease) { s.putRelease(o, sets.New(o.IDs...)) }

// ReleasesBy lists the present entries of the pods and resources that the changes touched; one without
// ids has been heard of.
func (s *State) ReleasesBy(changes []Change) (out []PendingRelease) {
	seen := sets.New[types.UID]()
	for _, c := range changes {
		touched := c.Releases
		if c.Released.UID != "" {
			touched = append(slices.Clip(touched), c.Released)
		}
		for _, o := range touched {
			if !seen.Has(o.Entry()) {
				seen.Insert(o.Entry())
				o.IDs = s.findRelease(o).IDs
				out = append(out, o)
			}
		}
	}
	return out
}

// findRelease returns the entry of a pod and resource.
func (s *State) findRelease(o PendingRelease) PendingRelease {
	if at, found := slices.BinarySearchFunc(s.PendingReleases, o, compareReleases); found {
		return s.PendingReleases[at]
	}
	return PendingRelease{}
}

// putRelease copies the list before it changes it, as states share lists.
func (s *State) putRelease(o PendingRelease, ids sets.Set[string]) {
	at, found := slices.BinarySearchFunc(s.PendingReleases, o, compareReleases)
	out := slices.Clone(s.PendingReleases)
	if found {
		out = slices.Delete(out, at, at+1)
	}
	if ids.Len() > 0 {
		o.IDs = natural(ids)
		out = slices.Insert(out, at, o)
	}
	if s.PendingReleases = out; len(out) == 0 {
		s.PendingReleases = nil
	}
}

func compareReleases(a, b PendingRelease) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.UID, b.UID))
}
