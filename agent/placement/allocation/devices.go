package allocation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// devices hands out the devices of device plugins.
type devices struct {
	draft           *draft
	taken, reusable map[string]sets.Set[string] // by resource; sets are never written to
	// owners have claims of other pods and of this one, and claimed says, by resource and id, which
	// devices are the same hardware. These are taken.
	owners  owners
	claimed map[string]map[string]string
}

func newDevices(d *draft) provider {
	p := &devices{
		draft: d, taken: map[string]sets.Set[string]{}, reusable: map[string]sets.Set[string]{},
		owners: d.view.Taken.owners(), claimed: map[string]map[string]string{},
	}
	for c := range podspec.Containers(d.pod) {
		for _, one := range (claimProvider{d}).wanted(c) {
			p.owners = p.owners.change(nil, Holdings{hardware(one.hardware())}).(owners)
		}
	}
	for resource, ids := range d.view.Taken.Devices() {
		p.taken[resource] = ids
	}
	return p
}

// deviceDemand is a demand for devices of some resources, ordered by name.
type deviceDemand struct {
	from      *devices
	container string // "": the pod
	requests  []deviceRequest
}

type deviceRequest struct {
	resource devicemanager.Resource
	count    int
	// chosen are the devices that a user chose for the container; nil: none. For a pod it is set only
	// if all its devices were chosen.
	chosen []string
}

// ask looks the requested resources up in the inventory. The plugin of devices that are held and
// answered is not needed any more.
func (p *devices) ask(c *v1.Container) (demand, error) {
	if c == nil {
		return p.askForPod(), nil
	}
	d, err := deviceDemand{from: p, container: c.Name}, error(nil)
	for _, r := range p.draft.view.deviceRequests(p.draft.pod, c) {
		resource, known := p.resource(r.Resource)
		held, _ := p.draft.view.Own.Containers[c.Name].device(r.Resource)
		if answered := held.Answer != nil && len(held.IDs) == r.Count; err == nil && !answered &&
			(!known || !resource.Connected) {
			err = &Unready{
				Resource: r.Resource, Known: known, Problem: resource.Problem,
				Arriving: resource.Arriving, Refused: p.draft.view.Inventory.Refused[r.Resource],
			}
		}
		d.requests = append(d.requests, deviceRequest{
			resource, r.Count, p.draft.view.Chosen[c.Name][r.Resource],
		})
	}
	return d, err
}

// resource returns what plugins say of a resource, and notes which of its devices claims have.
func (p *devices) resource(name string) (devicemanager.Resource, bool) {
	r, known := p.draft.view.Inventory.Resources[name]
	r.Name = name
	if _, noted := p.claimed[name]; !noted {
		if p.claimed[name] = p.owners.claimed(r); len(p.claimed[name]) > 0 {
			p.taken[name] = p.taken[name].Union(sets.KeySet(p.claimed[name]))
		}
	}
	return r, known
}

// claimedBy says, for people, which devices of a resource are not free since claims have them; "": none.
func (p *devices) claimedBy(resource string) string {
	var words []string
	for _, id := range slices.SortedFunc(maps.Keys(p.claimed[resource]), devicemanager.CompareIDs) {
		words = append(words, p.claimed[resource][id])
	}
	if n := len(words); n > mostWords {
		words = append(words[:mostWords], fmt.Sprintf("%d more", n-mostWords))
	}
	return strings.Join(words, "; ")
}

// mostWords bounds what claimedBy lists.
const mostWords = 3

func (p *devices) askForPod() demand {
	d := deviceDemand{from: p}
	counts := podspec.AllDevices(p.draft.pod)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if p.draft.view.IsForeign(name) {
			continue
		}
		resource, _ := p.resource(name)
		d.requests = append(d.requests, deviceRequest{
			resource, counts[name], p.draft.view.Chosen.All(p.draft.pod, name),
		})
	}
	return d
}

func (p *devices) take(container string, kind podspec.Kind) {
	for _, d := range p.draft.plan.Pod.Containers[container].Devices() {
		ids := sets.New(d.IDs...)
		p.taken[d.Resource] = p.taken[d.Resource].Union(ids)
		if kind == podspec.Init {
			p.reusable[d.Resource] = p.reusable[d.Resource].Union(ids)
		} else {
			p.reusable[d.Resource] = p.reusable[d.Resource].Difference(ids)
		}
	}
}

// confine leaves only the lent devices of a resource free, if there are enough.
func (p *devices) confine(v *View, c *v1.Container, lent []Container) {
	taken := DeviceIDs{}
	maps.Copy(taken, v.Taken.Devices())
	for _, r := range p.draft.view.deviceRequests(p.draft.pod, c) {
		ids := devicesOf(lent, r.Resource).IDs
		if len(ids) < r.Count {
			continue
		}
		others := sets.New[string]()
		for _, device := range v.Inventory.Resources[r.Resource].Devices {
			others.Insert(device.ID)
		}
		taken[r.Resource] = others.Delete(ids...)
	}
	v.Taken = v.Taken.With(taken)
}

// allocatable reports whether the plugin still offers all these devices and no other pod holds one.
func (p *devices) allocatable(r devicemanager.Resource, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool {
		if p.reusable[r.Name].Has(id) {
			return false
		}
		d, found := r.Find(id)
		return !found || !d.Healthy || p.taken[r.Name].Has(id)
	})
}

// request returns the request without what is taken and what later containers keep.
func (p *devices) request(r deviceRequest, later []Container) devicemanager.Request {
	taken, reusable := p.taken[r.resource.Name], p.reusable[r.resource.Name]
	if kept := devicesOf(later, r.resource.Name); len(kept.IDs) > 0 {
		ids := sets.New(kept.IDs...)
		taken, reusable = taken.Union(ids), reusable.Difference(ids)
	}
	return devicemanager.Request{
		Resource: r.resource, N: r.count, Taken: taken, Reusable: healthyOf(r.resource, reusable),
	}
}

// healthyOf leaves out devices that an init container kept and that no other container can get now.
func healthyOf(r devicemanager.Resource, ids sets.Set[string]) []string {
	return slices.DeleteFunc(sets.List(ids), func(id string) bool {
		d, found := r.Find(id)
		return !found || !d.Healthy
	})
}

// around returns a request whose nodes must include those of the kept devices. A plugin that is
// away need not list these devices any more.
func (p *devices) around(r deviceRequest, k fixed) devicemanager.Request {
	out := p.request(r, k.later)
	kept := devicesOf(k.own, r.resource.Name)
	if len(kept.IDs) == 0 {
		return out
	}
	out.Reusable = kept.IDs
	out.Resource.Devices = slices.Clone(out.Resource.Devices)
	for i, id := range kept.IDs {
		if _, found := r.resource.Find(id); !found {
			out.Resource.Devices = append(out.Resource.Devices, &devicemanager.Device{
				ID: id, Healthy: true, Nodes: kept.NodesOf(i),
			})
		}
	}
	return out
}

// devicesOf returns the containers' devices of a resource, each once: init containers pass their
// devices on to later ones.
func devicesOf(containers []Container, resource string) (all DeviceSet) {
	for _, c := range containers {
		d, _ := c.device(resource)
		for i, id := range d.IDs {
			if !slices.Contains(all.IDs, id) {
				all.IDs, all.Nodes = append(all.IDs, id), append(all.Nodes, d.NodesOf(i))
			}
		}
	}
	return all
}

func (d deviceDemand) lacks(held Container) (out []string) {
	for _, r := range d.requests {
		if has, _ := held.device(r.resource.Name); len(has.IDs) < r.count {
			out = append(out, fmt.Sprintf("%d %s of container %s", r.count, r.resource.Name,
				d.container))
		}
	}
	return out
}

// keep keeps devices without a valid answer as intent: the same ids, and Allocate is called again.
func (d deviceDemand) keep(_ podspec.Kind, own Container, kept *Container) bool {
	var stays Devices
	for _, r := range d.requests {
		held, ok := own.device(r.resource.Name)
		if ok && len(held.IDs) == r.count &&
			(held.Answer != nil || d.from.allocatable(r.resource, held.IDs)) {
			stays = append(stays, held)
		}
	}
	kept.set(stays)
	return len(stays) == len(d.requests) && len(own.Devices()) == len(d.requests)
}

func (d deviceDemand) offer(k fixed) (out offer) {
	nodes := d.from.draft.view.Machine.NodeSet()
	for _, r := range d.requests {
		one := offer{hints: []topology.ResourceHints{{Resource: r.resource.Name}}}
		if supply, ok := d.supply(nodes, r, k); ok {
			one = offerOf(supply, supply.Hints(), r.resource.Name)
		}
		out.hints = append(out.hints, one.hints...)
		out.supplies = append(out.supplies, one.supplies...)
	}
	return out
}

// supply returns where the request can be met. If all devices were chosen, that is where they are.
func (d deviceDemand) supply(nodes topology.NodeSet, r deviceRequest,
	k fixed) (topology.Supply, bool) {
	if has := devicesOf(k.own, r.resource.Name); r.chosen != nil && len(has.IDs) >= r.count {
		return devicemanager.SupplyOf(nodes, r.resource, has.IDs)
	}
	return devicemanager.Supply(nodes, d.from.around(r, k))
}

func (d deviceDemand) choose(later []Container, hint topology.Hint, got *Container) error {
	var gets Devices
	for i, r := range d.requests {
		set, kept := got.device(r.resource.Name)
		if !kept {
			ids, err := d.chooseOne(r, later, hint, d.near(i, later, hint, gets, got))
			if err != nil {
				return err
			}
			set = NewDeviceSet(r.resource, ids)
		}
		gets = append(gets, set)
	}
	got.set(gets)
	return nil
}

// chooseOne picks devices of one resource. If a plugin's advice is wanted and missing for the first
// time, it puts the question into the plan and goes on without advice.
func (d deviceDemand) chooseOne(r deviceRequest, later []Container, hint topology.Hint,
	near devicemanager.Neighbours) ([]string, error) {
	key := AskKey{
		Container: d.container, Resource: r.resource.Name,
		Ahead: d.from.draft.plan.Ahead != nil,
	}
	req := d.from.request(r, later)
	req.Hint, req.Near = hint, near
	advice, asked := d.from.draft.advice[key]
	if plan := &d.from.draft.plan; !asked && plan.Ask == nil {
		if want, ok := devicemanager.AdviceWanted(req); ok {
			plan.Ask = &Ask{AskKey: key, PreferredRequest: want}
		}
	}
	req.Advice = advice
	ids, err := devicemanager.Choose(req)
	if few, is := errors.AsType[*devicemanager.UnavailableError](err); is {
		few.Claimed = d.from.claimedBy(r.resource.Name)
	}
	return ids, err
}

// near returns what the devices of the i-th request are to be close to: the devices that the
// container has by claims and of other resources, and those that it may get next.
func (d deviceDemand) near(i int, later []Container, hint topology.Hint, has Devices,
	got *Container) (near devicemanager.Neighbours) {
	view := d.from.draft.view
	if view.DevicesByID {
		return near
	}
	near.Machine = view.Machine
	for _, next := range d.requests[i+1:] {
		if kept, is := got.device(next.resource.Name); is {
			has = append(slices.Clip(has), kept)
		}
	}
	for _, at := range (claimProvider{d.from.draft}).at(d.container) {
		near.Has = append(near.Has, places.PCI(view.Machine, at))
	}
	for _, set := range has {
		for _, id := range set.IDs {
			if pci, known := view.Inventory.Resources[set.Resource].PCI(view.Machine, id); known {
				near.Has = append(near.Has, pci)
			}
		}
	}
	for _, next := range d.requests[i+1:] {
		if len(near.Has)+len(near.Gets) > 0 {
			break
		}
		req := d.from.request(next, later)
		near.Next = next.count
		near.Gets = next.resource.Free(view.Machine, req.Taken.Difference(sets.New(req.Reusable...)),
			hint)
	}
	return near
}

// at lists the places of the devices that a container has by claims.
func (p claimProvider) at(container string) (out []claim.Place) {
	for c := range podspec.Containers(p.draft.pod) {
		if c.Name != container {
			continue
		}
		for _, one := range p.wanted(c) {
			for _, device := range one.Devices {
				if at := device.Place; !device.Admin && (at.PCI != "" || at.Root != "") {
					out = append(out, at)
				}
			}
		}
	}
	return out
}
