package rig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// pool says what a pod is to have as a whole. If it has CPUs, containers get parts of these and share the
// rest; the same is true of memory. Otherwise containers have their own from the node.
type pool struct {
	cpus   int
	memory map[v1.ResourceName]uint64 // bytes
}

// poolOf returns the pool that is due to a pod under these rules of its own.
func poolOf(pod *v1.Pod, view allocation.View, rules topology.Rules) (p pool) {
	if podspec.OwnOf(pod, rules) != podspec.OwnPool {
		return p
	}
	if view.CPUs != nil {
		p.cpus = cpumanager.Pool(pod, rules)
	}
	if view.Memory != nil {
		p.memory = memory.PodRequests(pod, rules)
	}
	return p
}

// keeping returns what a pod of the lot has that ran as another before: its pool is not resized.
func (l *lot) keeping(before *lot) *lot {
	out := *l
	out.pool = before.pool
	return &out
}

// sharesCPUs reports whether the container shares CPUs of the pod's pool.
func (l *lot) sharesCPUs(c *v1.Container) bool {
	return l.pool.cpus > 0 && cpumanager.Exclusive(l.Pod, c, l.rules) == 0
}

// sharesMemory reports whether the container shares memory of the pod's pool.
func (l *lot) sharesMemory(c *v1.Container) bool {
	return len(l.pool.memory) > 0 && len(memory.Requests(l.Pod, c, l.rules)) == 0
}

// beside returns the containers that have a part of the pool while this one shares the rest: all that last,
// or for an init container the sidecars before it.
func (l *lot) beside(sharer *v1.Container) (out []*v1.Container) {
	_, shares := podspec.Find(l.Pod, sharer.Name)
	for c, kind := range podspec.Containers(l.Pod) {
		if c.Name == sharer.Name && shares == podspec.Init {
			break
		}
		if kind != podspec.Init {
			out = append(out, c)
		}
	}
	return out
}

// restOfCPUs returns the CPUs of the pool that are left for the container.
func (l *lot) restOfCPUs(sharer *v1.Container, got allocation.Pod) cpuset.CPUSet {
	rest := got.Pool().CPUs()
	for _, c := range l.beside(sharer) {
		if !l.sharesCPUs(c) {
			rest = rest.Difference(got.Containers[c.Name].CPUs())
		}
	}
	return rest
}

// restOfMemory returns the bytes of the pool that are left for the container.
func (l *lot) restOfMemory(sharer *v1.Container) map[v1.ResourceName]uint64 {
	rest := maps.Clone(l.pool.memory)
	for _, c := range l.beside(sharer) {
		for name, n := range memory.Requests(l.Pod, c, l.rules) {
			rest[name] -= min(n, rest[name])
		}
	}
	return rest
}

// checkPool checks that the pod has the pool that is due to it, and that only its containers have anything.
func (w *world) checkPool(l *lot, got allocation.Pod) error {
	has, due := got.Pool(), l.pool.cpus
	if due > 0 && l.rules.WholeCores {
		due = w.room.CPUs.For(l.rules.CPURules).Padded(has.CPUs(), due)
	}
	if has.CPUs().Size() != due {
		return fmt.Errorf("%s got the CPUs %s as a whole, and %d are due to it", l.Name, has.CPUs(), due)
	}
	bytes := map[v1.ResourceName]uint64{}
	for _, b := range has.Memory() {
		bytes[b.Resource] += b.Size
		if b.Nodes != has.Memory()[0].Nodes {
			return fmt.Errorf("%s got memory on nodes %s and on %s as a whole", l.Name, has.Memory()[0].Nodes, b.Nodes)
		}
	}
	if !maps.Equal(bytes, l.pool.memory) {
		return fmt.Errorf("%s got the bytes %v as a whole, and %v are due to it", l.Name, bytes, l.pool.memory)
	}
	if len(has.Devices())+len(has.Claims()) > 0 {
		return fmt.Errorf("%s got devices as a whole, and containers have these", l.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(got.Containers)) {
		c, _ := podspec.Find(l.Pod, name)
		if c == nil && name != allocation.WholePod && !got.Containers[name].IsEmpty() {
			return fmt.Errorf("%s: container %s got something and is not there", l.Name, name)
		}
	}
	return nil
}

// checkCPUs checks that the container has as many CPUs as it asked for, those of a pool within it, or all
// that is left of the pool.
func (w *world) checkCPUs(l *lot, c *v1.Container, got allocation.Pod) error {
	has, whole := got.Containers[c.Name].CPUs(), got.Pool().CPUs()
	if l.sharesCPUs(c) {
		if rest := l.restOfCPUs(c, got); rest.IsEmpty() || !has.Equals(rest) {
			return fmt.Errorf("it shares the CPUs %s of its pod, of which %s are left for it", has, rest)
		}
		return nil
	}
	if l.pool.cpus > 0 && !has.IsSubsetOf(whole) {
		return fmt.Errorf("it got the CPUs %s, and its pod's are %s", has, whole)
	}
	if w.room.CPUs != nil && !w.asAsked(l, c, has) {
		return fmt.Errorf("it got %d CPUs and asked for %d", has.Size(), cpumanager.Exclusive(l.Pod, c, l.rules))
	}
	return nil
}

// checkMemoryOfPool checks that the container has its part of the pool's memory, or all that is left.
func (l *lot) checkMemoryOfPool(c *v1.Container, got allocation.Pod) error {
	due := memory.Requests(l.Pod, c, l.rules)
	if l.sharesMemory(c) {
		due = l.restOfMemory(c)
	}
	if l.sharesMemory(c) && due[v1.ResourceMemory] == 0 {
		return errors.New("it shares its pod's memory, of which nothing is left")
	}
	left, whole := map[v1.ResourceName]uint64{}, got.Pool().Memory()
	maps.Copy(left, due)
	for _, b := range got.Containers[c.Name].Memory() {
		if b.Size > left[b.Resource] {
			return fmt.Errorf("it got %d bytes of %s more of its pod's than are due to it", b.Size-left[b.Resource],
				b.Resource)
		}
		left[b.Resource] -= b.Size
		if b.Nodes != whole[0].Nodes {
			return fmt.Errorf("it got memory on nodes %s, and its pod's is on %s", b.Nodes, whole[0].Nodes)
		}
	}
	for name, n := range left {
		if n > 0 {
			return fmt.Errorf("it got %d bytes of %s less of its pod's than are due to it", n, name)
		}
	}
	return nil
}

// checkNode checks that a policy of one NUMA node gave all from one: to each container, or to the pod.
func (w *world) checkNode(l *lot, got allocation.Pod) error {
	if l.rules.Policy != topology.SingleNUMANode {
		return nil
	}
	placed := [][]allocation.Container{{got.Pool()}}
	for c := range podspec.Containers(l.Pod) {
		held := got.Containers[c.Name]
		if l.rules.Scope == topology.PodScope {
			placed[0] = append(placed[0], held)
		} else {
			placed = append(placed, []allocation.Container{held})
		}
	}
	for _, together := range placed {
		if at := spotOf(w.site.Machine, together...); !at.aligned && !at.nodes.IsEmpty() {
			return fmt.Errorf("%s got something of the nodes %s under the policy %s", l.Name, at.nodes, l.rules.Policy)
		}
	}
	return nil
}
