package allocation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/places"
)

// hardwareKind sums which hardware pods have by claims and from device plugins, so that no pod gets by
// one way what another pod has by the other. It follows from the claims and devices that containers
// hold, and is no holding itself.
var hardwareKind = kind{
	name: "hardware", none: owners{},
	sum: func(pods []Pod) total { return hardwareOf(pods) },
	releasing: func(o PendingRelease) total {
		return hardwareOf([]Pod{{Namespace: o.Namespace, Name: o.Name, Containers: map[string]Container{
			"": {Devices{{Resource: o.Resource, IDs: o.IDs}}}}}})
	},
}

// owner is a device of a claim or of a plugin that pods have.
type owner struct {
	places.Identity
	byClaim bool
}

func (o owner) compare(p owner) int {
	if o.byClaim != p.byClaim {
		if o.byClaim {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(o.Words, p.Words), strings.Compare(o.UUID, p.UUID),
		strings.Compare(o.Parent, p.Parent), strings.Compare(o.PCI, p.PCI))
}

// hardware lists the devices that some pods have together and that are known to be some hardware, in
// order, each once.
type hardware []owner

func hardwareOf(pods []Pod) (out hardware) {
	for _, p := range pods {
		for _, c := range p.Containers {
			of := ", which pod " + p.Namespace + "/" + p.Name + " has,"
			out = append(out, c.hardware(of)...)
		}
	}
	slices.SortFunc(out, owner.compare)
	return slices.CompactFunc(out, func(a, b owner) bool { return a.compare(b) == 0 })
}

// hardware lists the container's devices; words name their holder.
func (c Container) hardware(words string) (out []owner) {
	for _, set := range c.Devices() {
		for i, id := range set.IDs {
			if is := places.OfPlugin(set.Resource, id, set.AddressOf(i)); is.Known() {
				out = append(out, owner{Identity: is})
			}
		}
	}
	for _, one := range c.Claims() {
		out = append(out, one.hardware()...)
	}
	for i := range out {
		out[i].Words += words
	}
	return out
}

// hardware lists the claim's devices, without those with administrative access, which the claim does
// not own.
func (c Claim) hardware() (out []owner) {
	for _, d := range c.Devices {
		if is := places.OfClaim(c.Name, d); is.Known() && !d.Admin {
			out = append(out, owner{is, true})
		}
	}
	return out
}

// Kind implements total.
func (hardware) Kind() string { return hardwareKind.name }

func (h hardware) empty() bool { return len(h) == 0 }

func (h hardware) equal(o Holdings) bool {
	return slices.EqualFunc(h, find(o, hardware(nil)), func(a, b owner) bool { return a.compare(b) == 0 })
}

// overlaps reports whether one has by claim what the other has from a plugin.
func (h hardware) overlaps(o Holdings) bool {
	others := o.owners()
	return slices.ContainsFunc(h, func(one owner) bool { return others.other(one) != "" })
}

// owners are the devices that pods have, by each of their keys, with the number of pods. It is
// immutable. It is a total too, so that a lookup needs no copy.
type owners struct {
	by     shards[string, []owned] // the lists are never written to
	claims int                     // of claims' devices, each as often as a pod has it
}

type owned struct {
	owner
	pods int
}

func (n owners) change(had, has Holdings) counts {
	before, after := find(had, hardware(nil)), find(has, hardware(nil))
	for _, o := range after {
		if _, kept := slices.BinarySearchFunc(before, o, owner.compare); !kept {
			n = n.add(o, 1)
		}
	}
	for _, o := range before {
		if _, kept := slices.BinarySearchFunc(after, o, owner.compare); !kept {
			n = n.add(o, -1)
		}
	}
	return n
}

// add counts one pod more or less that has the device.
func (n owners) add(o owner, pods int) owners {
	if o.byClaim {
		n.claims += pods
	}
	for _, key := range o.Keys() {
		list, _ := n.by.get(key)
		at, known := slices.BinarySearchFunc(list, o,
			func(a owned, b owner) int { return a.compare(b) })
		if list = slices.Clone(list); !known {
			list = slices.Insert(list, at, owned{owner: o})
		}
		if list[at].pods += pods; list[at].pods == 0 {
			list = slices.Delete(list, at, at+1)
		}
		if n.by = n.by.with(key, list); len(list) == 0 {
			n.by = n.by.without(key)
		}
	}
	return n
}

// other says, for people, which of the owners has the device's hardware by the other way; "": none.
func (n owners) other(o owner) string {
	for _, key := range o.Keys() {
		list, _ := n.by.get(key)
		for _, has := range list {
			if has.byClaim != o.byClaim {
				if why := places.Same(o.Identity, has.Identity); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

func (n owners) taken([]string) total { return n }

func (owners) lasting(sum, Holdings, string) int { return 0 }

// conflict is empty: two pods that run keep what they have.
func (owners) conflict(Holdings) string { return "" }

// Kind implements total.
func (owners) Kind() string { return hardwareKind.name }

func (n owners) empty() bool { return n.by.size == 0 }

func (n owners) equal(o Holdings) bool { return n.empty() && o.owners().empty() }

func (n owners) overlaps(Holdings) bool { return false }

// owners returns the owners of what is held.
func (t Holdings) owners() owners {
	if n := find(t, owners{}); !n.empty() {
		return n
	}
	return owners{}.change(nil, t).(owners)
}

// ByClaims says, for people and by id, which of the resource's devices are the same hardware as devices
// that claims have.
func (t Holdings) ByClaims(r devicemanager.Resource) map[string]string { return t.owners().claimed(r) }

// claimed says, by id, which of the resource's devices are the same hardware as devices of claims.
func (n owners) claimed(r devicemanager.Resource) map[string]string {
	if n.claims == 0 {
		return nil
	}
	out := map[string]string{}
	for _, d := range r.Devices {
		if why := n.other(owner{Identity: places.OfPlugin(r.Name, d.ID, r.Addresses[d.ID])}); why != "" {
			out[d.ID] = why
		}
	}
	return out
}

// ReasonOwned is our own reason of a rejection: a claim has a device that a pod has from a plugin.
const ReasonOwned = "DeviceHasOwner"

// ownedError says that a device of a claim is a plugin's device that a pod has.
type ownedError struct{ claim, why string }

func (e *ownedError) Error() string {
	return fmt.Sprintf("%s cannot be used: %s; have either the driver or the device plugin hand out this "+
		"hardware, or end the pod that has it", e.claim, e.why)
}

// Reason returns the reason of the rejection.
func (e *ownedError) Reason() string { return ReasonOwned }

// owned returns an *ownedError for the first device of the claims, which the pod does not have yet, that
// another pod has from a plugin, or this one.
func (p claimProvider) owned(wants Claims) error {
	if len(wants) == 0 {
		return nil
	}
	var recorded Claims
	all := p.draft.view.Taken.owners()
	for name, c := range p.draft.view.Own.Containers {
		if p.draft.view.Keep != KeepWhole { // what it waits for it does not have
			recorded = append(recorded, c.Claims()...)
		}
		for _, set := range c.Devices() {
			if set.Answer != nil {
				held := Container{Devices{set}}.hardware(", which container " + name + " has,")
				all = all.change(nil, Holdings{hardware(held)}).(owners)
			}
		}
	}
	for _, want := range wants {
		if slices.ContainsFunc(recorded, want.same) {
			continue
		}
		for _, o := range want.hardware() {
			if why := all.other(o); why != "" {
				return &ownedError{want.String(), why}
			}
		}
	}
	return nil
}

// claimed says, for people, which devices of the requested resources claims have; "": none.
func (d deviceDemand) claimed() (words string) {
	for _, r := range d.requests {
		if by := d.from.claimedBy(r.resource.Name); by != "" {
			words += "; " + by
		}
	}
	return words
}
