package allocation

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Owed is devices of a pod that it holds no more, and of which their plugin is still to hear that.
// Until then nobody is given them. It is in the state from the commit on that takes them from the
// pod.
type Owed struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Kind is the kind of what is owed; "": devices, as in files of version 3.
	Kind     string   `json:"kind,omitempty"`
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"` // in natural order
}

// Entry is the Owed's name in a Ledger; no pod has that UID.
func (o Owed) Entry() types.UID {
	return types.UID("owed\x00" + o.Kind + "\x00" + o.Resource + "\x00" + string(o.UID))
}

// Taken is what nobody is given.
func (o Owed) Taken() Taken {
	for _, k := range kinds {
		if k.name == cmp.Or(o.Kind, deviceKind.name) && k.owed != nil {
			return Taken{k.owed(o)}
		}
	}
	return nil
}

// Owes is what others are to hear of a pod that holds before no longer, but after; wants reports
// whether the plugin of a resource may want that.
func Owes(before, after Pod, wants func(resource string) bool) (out []Owed) {
	for _, k := range kinds {
		if k.owes != nil {
			out = append(out, k.owes(before, after, wants)...)
		}
	}
	slices.SortFunc(out, compareOwed)
	return out
}

func owesDevices(before, after Pod, wants func(resource string) bool) (out []Owed) {
	kept := deviceIDsOf([]Pod{after})
	for resource, ids := range deviceIDsOf([]Pod{before}) {
		lost := ids.Difference(kept[resource])
		if lost.Len() == 0 || !wants(resource) {
			continue
		}
		out = append(out, Owed{
			UID: before.UID, Namespace: before.Namespace, Name: before.Name, Resource: resource,
			IDs: natural(lost),
		})
	}
	return out
}

func natural(ids sets.Set[string]) []string {
	return slices.SortedFunc(maps.Keys(ids), devicemanager.CompareIDs)
}

// owe adds devices to what a plugin is to hear of a pod.
func (s *State) owe(o Owed) {
	s.putOwed(o, sets.New(o.IDs...).Insert(s.findOwed(o).IDs...))
}

// settle takes devices out of it.
func (s *State) settle(o Owed) {
	s.putOwed(o, sets.New(s.findOwed(o).IDs...).Delete(o.IDs...))
}

// PutOwed has just these devices of a pod and resource be owed; without ids none.
func (s *State) PutOwed(o Owed) { s.putOwed(o, sets.New(o.IDs...)) }

// OwedBy is what the changes that led to the state owe or settle, as it is now; without ids nothing
// is owed any more.
func (s *State) OwedBy(changes []Change) (out []Owed) {
	seen := sets.New[types.UID]()
	for _, c := range changes {
		touched := c.Owe
		if c.Settle.UID != "" {
			touched = append(slices.Clip(touched), c.Settle)
		}
		for _, o := range touched {
			if !seen.Has(o.Entry()) {
				seen.Insert(o.Entry())
				o.IDs = s.findOwed(o).IDs
				out = append(out, o)
			}
		}
	}
	return out
}

// findOwed is what is owed of that pod and resource.
func (s *State) findOwed(o Owed) Owed {
	if at, found := slices.BinarySearchFunc(s.Owed, o, compareOwed); found {
		return s.Owed[at]
	}
	return Owed{}
}

// putOwed has it be these ids. States share their lists.
func (s *State) putOwed(o Owed, ids sets.Set[string]) {
	at, found := slices.BinarySearchFunc(s.Owed, o, compareOwed)
	out := slices.Clone(s.Owed)
	if found {
		out = slices.Delete(out, at, at+1)
	}
	if ids.Len() > 0 {
		o.IDs = natural(ids)
		out = slices.Insert(out, at, o)
	}
	if s.Owed = out; len(out) == 0 {
		s.Owed = nil
	}
}

func compareOwed(a, b Owed) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.UID, b.UID))
}
