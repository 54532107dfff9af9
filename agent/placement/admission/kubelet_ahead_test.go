package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// begin makes it a pod of a small init container and a larger one.
func (w *world) begin(pod *v1.Pod) {
	pod.Spec = v1.PodSpec{}
	for _, c := range []struct {
		name       string
		cpus, gpus int
	}{{"init!", 1, w.IntN(4) / 3}, {"main", 2 + w.IntN(6), w.IntN(3)}} {
		text := fmt.Sprintf("%s cpu=%d memory=64Mi", c.name, c.cpus)
		if c.gpus > 0 {
			text += fmt.Sprint(" gpu=", c.gpus)
		}
		podtest.Containers(text)(pod)
	}
}

// lookedAhead says what is wrong with a place that the kubelet does not see: it sees one without the
// init containers, or else there are several containers that last; each container has by itself a
// place that the policy allows; and nothing is had twice at the same time.
func (n *naive) lookedAhead(pod *v1.Pod, held map[string]naiveHeld) string {
	last := pod.DeepCopy()
	last.Spec.InitContainers = slices.DeleteFunc(last.Spec.InitContainers, func(c v1.Container) bool {
		return !podspec.IsSidecar(&c)
	})
	if err := n.submit(last); err != nil {
		if len(last.Spec.Containers)+len(last.Spec.InitContainers) < 2 {
			return "without its init containers " + err.Error()
		}
	}
	delete(n.pods, pod.UID)
	taken := sets.New[string]()
	take := func(h naiveHeld) (twice string) {
		for _, id := range h.cpus.List() {
			if key := fmt.Sprint("CPU ", id); taken.Has(key) {
				twice = key
			}
			taken.Insert(fmt.Sprint("CPU ", id))
		}
		for name, ids := range h.devices {
			for _, id := range ids {
				if key := name + " " + id; taken.Has(key) {
					twice = key
				}
				taken.Insert(name + " " + id)
			}
		}
		return twice
	}
	for _, other := range n.pods {
		for _, h := range other.containers {
			take(h)
		}
	}
	for c, kind := range podspec.Containers(pod) {
		h, before := held[c.Name], taken.Clone()
		if h.cpus.Size() != cpumanager.Exclusive(pod, c, topology.Rules{}) {
			return c.Name + " has other CPUs than it asks for"
		}
		if twice := take(h); twice != "" {
			return twice + " is had twice"
		}
		if n.policy == topology.SingleNUMANode && n.nodesOf(h).Len() > 1 {
			return c.Name + " is on several nodes"
		}
		if kind == podspec.Init {
			taken = before // it has ended
		}
	}
	if err := n.fits(pod); err != nil {
		return err.Error()
	}
	return ""
}

// nodesOf is where CPUs and devices are; of the devices those that are anywhere in particular.
func (n *naive) nodesOf(h naiveHeld) topology.NodeSet {
	nodes := n.hardware.Machine.NodesOf(h.cpus)
	for name, ids := range h.devices {
		for _, d := range n.inventory[name].Devices {
			if slices.Contains(ids, d.ID) {
				nodes = nodes.Union(d.Nodes)
			}
		}
	}
	return nodes
}

// spec is what containers ask for, in short.
func spec(pod *v1.Pod) string {
	var b strings.Builder
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		fmt.Fprintf(&b, "%s:", c.Name)
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			q := c.Resources.Limits[name]
			fmt.Fprintf(&b, " %s=%s", name, q.String())
		}
		b.WriteString("; ")
	}
	return b.String()
}
