package decide

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology/podspec"
)

// InCluster returns the view of a node whose object is the API server's.
func (v View) InCluster() View {
	v.Clustered, v.Advertised = true, nil
	if v.Node == nil || len(v.Node.Status.Capacity) == 0 {
		return v
	}
	v.Advertised = v1.ResourceList{}
	for name, amount := range v.Node.Status.Allocatable {
		if podspec.IsExtended(name) {
			v.Advertised[name] = amount
		}
	}
	return v
}

// Advertises names the extended resources of which the node's status says something else than before.
// known: it was not known before, and is now.
func Advertises(before, after View) (differing sets.Set[string], known bool) {
	was, is := before.Advertised, after.Advertised
	if was == nil || is == nil {
		return nil, is != nil
	}
	out := sets.Set[string]{}
	for _, side := range []v1.ResourceList{was, is} {
		for name := range side {
			a, had := was[name]
			if b, has := is[name]; had != has || a.Cmp(b) != 0 {
				out.Insert(string(name))
			}
		}
	}
	return out, false
}

// Differing names the resources whose differences between two inventories matter to a plan.
func Differing(before, after devicemanager.Inventory) sets.Set[string] {
	out := sets.Set[string]{}
	for name, a := range after.Resources {
		b, known := before.Resources[name]
		if !known || a.Connected != b.Connected || a.Problem != b.Problem ||
			a.Arriving != b.Arriving || a.Options.Preferred != b.Options.Preferred ||
			a.Generation != b.Generation {
			out.Insert(name)
		}
	}
	for name := range before.Resources {
		if _, known := after.Resources[name]; !known {
			out.Insert(name)
		}
	}
	for _, refused := range []map[string]string{before.Refused, after.Refused} {
		for name := range refused {
			if before.Refused[name] != after.Refused[name] {
				out.Insert(name)
			}
		}
	}
	return out
}

// Sound reports whether the machine might give each container of the pod its CPUs now.
func (v View) Sound(pod *v1.Pod, p allocation.Pod) bool {
	if v.Hardware.CPUs == nil {
		return true
	}
	cpus := v.Hardware.CPUs.For(podspec.CPURules(pod))
	if pool := p.Pool().CPUs(); !pool.IsEmpty() {
		return cpus.Whole(pool) // containers may split cores within it
	}
	for _, c := range p.Containers {
		if !cpus.Whole(c.CPUs()) {
			return false
		}
	}
	return true
}

// WithoutAway returns the pod without the answers of plugins that are away. Where pods do not wait,
// a pod that no longer runs starts by what its plugins say now, as under the kubelet.
func (v View) WithoutAway(p allocation.Pod) allocation.Pod {
	away := func(d allocation.DeviceSet) bool { return !v.Inventory.Resources[d.Resource].Connected }
	for name, c := range p.Containers {
		if slices.ContainsFunc(c.Devices(), away) {
			p.Containers = maps.Clone(p.Containers)
			p.Containers[name] = c.With(c.Devices().With(func(d *allocation.DeviceSet) {
				if away(*d) {
					d.Answer = nil
				}
			}))
		}
	}
	return p
}

// Contested names the pod's resources whose plugins have a preference, unless all its devices of the
// resource are chosen.
func (v View) Contested(d Demand) (out []string) {
	for name := range d.Least {
		if contested(v.Inventory, d, name) {
			out = append(out, name)
		}
	}
	return out
}

// HasContested reports whether any contested resource satisfies such.
func (v View) HasContested(d Demand, such func(resource string) bool) bool {
	for name := range d.Least {
		if such(name) && contested(v.Inventory, d, name) {
			return true
		}
	}
	return false
}

func contested(in devicemanager.Inventory, d Demand, name string) bool {
	r := in.Resources[name]
	return r.Connected && r.Options.Preferred && d.Chosen.All(d.Pod, name) == nil
}

// Healthy reports whether all these devices, by resource, are there and healthy.
func (v View) Healthy(devices map[string]sets.Set[string]) bool {
	for name, ids := range devices {
		r := v.Inventory.Resources[name]
		if !r.Connected {
			return false
		}
		for id := range ids {
			if d, found := r.Find(id); !found || !d.Healthy {
				return false
			}
		}
	}
	return true
}
