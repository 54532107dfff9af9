package rig

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// publishedBy returns the devices of each class, with their places, in the order of PCI addresses.
func publishedBy(s *Site) map[string][]claim.Device {
	out := map[string][]claim.Device{}
	for class, r := range s.Inventory.Resources {
		for _, d := range r.Devices {
			one := claim.Device{Request: shortName(class), Driver: class, Pool: s.Machine.Name(), Name: d.ID,
				Place: claim.Place{Nodes: d.Nodes}}
			if pci, here := s.Machine.PCIDevice(d.ID); here {
				one.Place.PCI, one.Place.Root = pci.Address, pci.Root()
			}
			out[class] = append(out[class], one)
		}
		slices.SortStableFunc(out[class], func(a, b claim.Device) int {
			return strings.Compare(a.Place.PCI, b.Place.PCI)
		})
	}
	return out
}

// deviceKey identifies a device by its class and id.
type deviceKey struct{ class, id string }

func keyOf(d claim.Device) deviceKey { return deviceKey{d.Driver, d.Name} }

// devicesOf returns the devices that a container has from plugins, and by class those of its
// claims.
func devicesOf(c allocation.Container) allocation.Devices {
	claimed := claimedBy(c)
	if len(claimed) == 0 {
		return c.Devices()
	}
	out := slices.Concat(c.Devices(), claimed)
	slices.SortFunc(out, func(a, b allocation.DeviceSet) int {
		return strings.Compare(a.Resource, b.Resource)
	})
	return out
}

// claimedBy returns the devices of the container's claims, a set for each class.
func claimedBy(c allocation.Container) (out allocation.Devices) {
	for _, one := range c.Claims() {
		for _, d := range one.Devices {
			at := slices.IndexFunc(out, func(set allocation.DeviceSet) bool {
				return set.Resource == d.Driver
			})
			if at < 0 {
				at = len(out)
				out = append(out, allocation.DeviceSet{Resource: d.Driver})
			}
			set := &out[at]
			set.IDs, set.Nodes = append(set.IDs, d.Name), append(set.Nodes, d.Place.Nodes)
		}
	}
	return out
}

// idsOf returns the ids of devices by resource; nil: there are none.
func idsOf(devices allocation.Devices) map[string][]string {
	if len(devices) == 0 {
		return nil
	}
	out := map[string][]string{}
	for _, set := range devices {
		out[set.Resource] = set.IDs
	}
	return out
}

func (w *world) hasDevice(key deviceKey) bool {
	_, has := w.site.Inventory.Resources[key.class].Find(key.id)
	return has
}

// checkClaims checks that the container has the devices of its claims, and each claim those that it
// asks for.
func (w *world) checkClaims(l *lot, c *v1.Container, got allocation.Container) error {
	if len(got.Claims()) != len(c.Resources.Claims) {
		return fmt.Errorf("it got %d claims and uses %d", len(got.Claims()), len(c.Resources.Claims))
	}
	for _, one := range got.Claims() {
		at := slices.IndexFunc(l.Claims, func(s ClaimSpec) bool { return s.Name == one.Name })
		if at < 0 {
			return fmt.Errorf("it got claim %s, which the pod does not have", one.Name)
		}
		left, seen, common := l.Claims[at].counts(), map[deviceKey]bool{}, map[string]bool{}
		for _, d := range one.Devices {
			key := keyOf(d)
			if w.claimed.Has(key) || seen[key] || !w.hasDevice(key) {
				return fmt.Errorf("%s has %s of %s, which is taken or not there", one, d.Name, d.Driver)
			}
			seen[key] = true
			left[d.Driver]--
			if match := l.Claims[at].Match; match != "" {
				common[attributes[match](d.Place)] = true
			}
		}
		if len(common) > 1 || common[""] {
			return fmt.Errorf("%s has devices of another %s", one, l.Claims[at].Match)
		}
		for class, n := range left {
			if n != 0 && (one.Request == "" || one.Request == shortName(class)) {
				return fmt.Errorf("%s has %d of %s less than it asks for", one, n, class)
			}
		}
	}
	return nil
}

// claimsOf returns the devices of the pod's claims.
func claimsOf(p allocation.Pod) sets.Set[deviceKey] {
	out := sets.New[deviceKey]()
	for _, c := range p.Containers {
		for class, ids := range idsOf(claimedBy(c)) {
			for _, id := range ids {
				out.Insert(deviceKey{class, id})
			}
		}
	}
	return out
}
