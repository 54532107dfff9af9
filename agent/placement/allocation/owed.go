package allocation

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Owed lists what a pod no longer holds but a plugin has not been told of yet. No other pod gets it
// until then. The commit that takes it from the pod adds it to the state.
type Owed struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Kind is "" for devices, which alone were owed in files of version 3.
	Kind     string   `json:"kind,omitempty"`
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"` // in natural order
}

// Entry is the key of the Owed in a Ledger. No pod has that UID.
func (o Owed) Entry() types.UID {
	return types.UID("owed\x00" + o.Kind + "\x00" + o.Resource + "\x00" + string(o.UID))
}

// Taken returns the devices, which no pod gets, and the hardware that they are.
func (o Owed) Taken() (out Taken) {
	of := cmp.Or(o.Kind, deviceKind.name)
	for _, k := range kinds {
		if k.name == of || k == &hardwareKind && of == deviceKind.name {
			out = out.With(k.owed(o))
		}
	}
	return out
}

// Owes lists what becomes owed when a pod's holdings change from before to after. wants reports
// whether the device plugin of a resource may want to be told.
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

// owe adds ids to an entry.
func (s *State) owe(o Owed) {
	s.putOwed(o, sets.New(o.IDs...).Insert(s.findOwed(o).IDs...))
}

// settle removes ids from an entry.
func (s *State) settle(o Owed) {
	s.putOwed(o, sets.New(s.findOwed(o).IDs...).Delete(o.IDs...))
}

// PutOwed replaces the entry of a pod and resource; without ids it removes it.
func (s *State) PutOwed(o Owed) { s.putOwed(o, sets.New(o.IDs...)) }

// OwedBy lists the present entries of the pods and resources that the changes touched; one without
// ids is settled.
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

// findOwed returns the entry of a pod and resource.
func (s *State) findOwed(o Owed) Owed {
	if at, found := slices.BinarySearchFunc(s.Owed, o, compareOwed); found {
		return s.Owed[at]
	}
	return Owed{}
}

// putOwed copies the list before it changes it, as states share lists.
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
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.UID, b.UID))
}
