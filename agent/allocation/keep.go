package allocation

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology/podspec"
)

// Keeping is how much stays of what a pod holds already.
type Keeping int

const (
	// KeepParts is for a pod of which nothing runs: each resource of a container stays that still
	// is what it requests and that the machine still has, and the others are placed around it.
	KeepParts Keeping = iota
	// KeepWhole is for a claim: a container keeps all that it has, or nothing.
	KeepWhole
	// KeepAll is for a pod that runs: a container that has anything keeps just that, whatever has
	// become of policies, the machine or the request; only containers that have nothing are placed.
	KeepAll
)

// keep is what a container keeps of what it holds, and whether that is all that it requests. What
// was of an earlier policy stays as it is. Devices whose answers are void are kept as intent: same
// ids, a new Allocate.
func (w *work) keep(c *v1.Container, kind podspec.Kind, req request) (kept Container, whole bool) {
	own, ok := w.view.Own.Containers[c.Name]
	if !ok || own.isEmpty() {
		return Container{}, false
	}
	whole = len(own.Devices) == len(req.devices)
	if w.keepsCPUs(own.CPUs, req) {
		kept.CPUs = own.CPUs
	} else {
		whole = false
	}
	for _, d := range req.devices {
		held, ok := own.device(d.resource.Name)
		if ok && len(held.IDs) == d.count &&
			(held.Answer != nil || w.allocatable(d.resource, held.IDs)) {
			kept.Devices = append(kept.Devices, held)
		} else {
			whole = false
		}
	}
	if blocks, ok := w.keptMemory(kind, own.Memory, req.memory); ok {
		kept.Memory = blocks
	} else {
		whole = false
	}
	return kept, whole
}

func (w *work) keepsCPUs(own cpuset.CPUSet, req request) bool {
	if w.view.CPUs == nil {
		return true // they are of an earlier policy
	}
	return own.Size() == req.cpus && own.IsSubsetOf(w.freeCPUs.Union(w.reusableCPUs))
}

// allocatable reports whether the plugin still offers all these devices and nobody else has them.
func (w *work) allocatable(r deviceplugin.Resource, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool {
		if w.reusable[r.Name].Has(id) {
			return false
		}
		d, found := r.Find(id)
		return !found || !d.Healthy || w.taken[r.Name].Has(id)
	})
}

// sayKept notes what a container that had something keeps of it, and what is placed around that.
func (w *work) sayKept(c *v1.Container, req request) {
	own := w.view.Own.Containers[c.Name]
	if own.isEmpty() {
		return
	}
	var stays, goes []string
	say := func(stay bool, text string) {
		if stay {
			stays = append(stays, text)
		} else {
			goes = append(goes, text)
		}
	}
	if !own.CPUs.IsEmpty() {
		say(own.CPUs.Equals(req.kept.CPUs), "CPUs "+own.CPUs.String())
	}
	for _, d := range own.Devices {
		_, stay := req.kept.device(d.Resource)
		say(stay, d.Resource+" "+strings.Join(d.IDs[:min(len(d.IDs), 8)], ","))
	}
	for _, b := range own.Memory {
		say(len(req.kept.Memory) > 0, fmt.Sprintf("%s on node %s", b.Resource, b.Nodes))
	}
	w.kept = append(w.kept,
		fmt.Sprintf("container %s keeps %s; no longer valid, or not as requested: %s",
			c.Name, listed(stays), listed(goes)))
}

func listed(texts []string) string {
	if len(texts) == 0 {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}

// keptLater is what containers that start after c keep.
func (w *work) keptLater(c *v1.Container) (out []Container) {
	if w.view.Keep == KeepWhole || len(w.view.Own.Containers) == 0 {
		return nil
	}
	after := false
	for other, kind := range podspec.Containers(w.pod) {
		switch {
		case other.Name == c.Name:
			after = true
		case after && w.view.Keep == KeepAll:
			out = append(out, w.view.Own.Containers[other.Name])
		case after:
			if req, err := w.request(other); err == nil {
				kept, _ := w.keep(other, kind, req)
				out = append(out, kept)
			}
		}
	}
	return out
}

// setAside takes what later containers keep out of what a container is placed from, until back is
// called. An init container of a pod that does not run may have it: it gives it back before.
func (w *work) setAside(kind podspec.Kind, later []Container) (back func()) {
	if len(later) == 0 || kind == podspec.Init && w.view.Keep == KeepParts {
		return func() {}
	}
	all := together(later)
	free := all.CPUs.Intersection(w.freeCPUs)
	reusable := all.CPUs.Intersection(w.reusableCPUs)
	w.freeCPUs, w.reusableCPUs = w.freeCPUs.Difference(free), w.reusableCPUs.Difference(reusable)
	taken, passed := map[string]sets.Set[string]{}, map[string]sets.Set[string]{}
	for _, d := range all.Devices {
		ids := sets.New(d.IDs...)
		taken[d.Resource] = ids.Difference(w.taken[d.Resource])
		passed[d.Resource] = ids.Intersection(w.reusable[d.Resource])
		w.taken[d.Resource] = w.taken[d.Resource].Union(ids)
		w.reusable[d.Resource] = w.reusable[d.Resource].Difference(ids)
	}
	held := len(w.memory.held)
	w.memory.held = append(w.memory.held, all.Memory...)
	return func() {
		w.freeCPUs, w.reusableCPUs = w.freeCPUs.Union(free), w.reusableCPUs.Union(reusable)
		for resource, ids := range taken {
			w.taken[resource] = w.taken[resource].Difference(ids)
			w.reusable[resource] = w.reusable[resource].Union(passed[resource])
		}
		w.memory.held = slices.Delete(w.memory.held, held, held+len(all.Memory))
	}
}

// together is what containers keep, as if one of them did. Init containers hand on what they have,
// so that several may have the same.
func together(all []Container) (out Container) {
	for _, c := range all {
		out.CPUs = out.CPUs.Union(c.CPUs)
		out.Memory = append(out.Memory, c.Memory...)
		for _, d := range c.Devices {
			at := slices.IndexFunc(out.Devices, func(o DeviceSet) bool {
				return o.Resource >= d.Resource
			})
			if at < 0 {
				at = len(out.Devices)
			}
			if at == len(out.Devices) || out.Devices[at].Resource != d.Resource {
				out.Devices = slices.Insert(out.Devices, at, DeviceSet{Resource: d.Resource})
			}
			out.Devices[at] = out.Devices[at].plus(d)
		}
	}
	return out
}

func (d DeviceSet) plus(o DeviceSet) DeviceSet {
	sum := DeviceSet{Resource: d.Resource, IDs: slices.Clone(d.IDs), Nodes: slices.Clone(d.Nodes)}
	for i, id := range o.IDs {
		if !slices.Contains(d.IDs, id) {
			sum.IDs, sum.Nodes = append(sum.IDs, id), append(sum.Nodes, o.NodesOf(i))
		}
	}
	return sum
}

// reusableFor are the CPUs that the nodes of a request must have: those that it keeps, if any.
func (w *work) reusableFor(req request) cpuset.CPUSet {
	if req.kept.CPUs.IsEmpty() {
		return w.reusableCPUs
	}
	return req.kept.CPUs
}

// devicesAround is a device request whose nodes must have the devices that it keeps. A plugin that
// is away need not name them any more.
func (w *work) devicesAround(req request, d deviceRequest) deviceplugin.Request {
	out := w.devices(d)
	kept, ok := req.kept.device(d.resource.Name)
	if !ok {
		return out
	}
	out.Reusable = kept.IDs
	out.Resource.Devices = slices.Clone(out.Resource.Devices)
	for i, id := range kept.IDs {
		if _, found := d.resource.Find(id); !found {
			out.Resource.Devices = append(out.Resource.Devices, &deviceplugin.Device{
				ID: id, Healthy: true, Nodes: kept.NodesOf(i),
			})
		}
	}
	return out
}
