package allocation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// resizable is a demand that a resize can change.
type resizable interface {
	// resized takes from got what the container no longer requests. whole: that is all that changes; if not,
	// choose gives it the rest.
	resized(kind podspec.Kind, got *Container) (whole bool)
}

// resizables leaves out demands for what a resize does not change and the container lacks: it began without,
// and goes on so.
func resizables(all []demand, own Container) []demand {
	return slices.DeleteFunc(all, func(one demand) bool {
		_, is := one.(resizable)
		return !is && len(one.lacks(own)) > 0
	})
}

// resized returns what a container that runs keeps of its own in a resize.
func (a claimant) resized(own Container) (kept Container, whole bool) {
	kept, whole = slices.Clone(own), true
	for _, one := range a.demands {
		if r, ok := one.(resizable); ok {
			whole = r.resized(a.kind, &kept) && whole
		}
	}
	return kept, whole
}

// before returns the container before the resize; nil: there was none, or it is none.
func (d *draft) before(container string) *v1.Container {
	if d.view.Before == nil {
		return nil
	}
	c, _ := podspec.Find(d.view.Before, container)
	return c
}

// wants returns how many CPUs a container is to have that has these.
func (d cpuDemand) wants(has cpuset.CPUSet) int {
	before := d.from.draft.before(d.container)
	if len(d.parts) > 0 || before == nil ||
		cpumanager.Exclusive(d.from.draft.view.Before, before, d.from.draft.view.Rules) == d.asked {
		return has.Size()
	}
	return d.n
}

func (d cpuDemand) resized(_ podspec.Kind, got *Container) bool {
	has := got.CPUs()
	n := d.wants(has)
	if n < has.Size() {
		return d.resize(nil, topology.Hint{Any: true}, got) == nil // choose reports the error
	}
	return n == has.Size()
}

// resize changes the number of the container's CPUs.
func (d cpuDemand) resize(later []Container, hint topology.Hint, got *Container) error {
	has, added := got.CPUs(), got.AddedCPUs()
	free, reusable := d.from.left(later)
	cpus, err := d.from.static.Resize(free, reusable, cpumanager.Layers(has, added), d.wants(has), hint)
	if err != nil {
		return err
	}
	if more := cpus.Difference(has); !more.IsEmpty() {
		added = append(slices.Clone(added), more)
	}
	got.set(CPUs(cpus))
	got.set(addedTo(cpus, added))
	return nil
}

func (d memoryDemand) resized(kind podspec.Kind, got *Container) bool {
	has, before := got.Memory(), d.from.draft.before(d.container)
	switch {
	case d.from.static == nil || before == nil:
		return true
	case kind == podspec.Init:
		d.restore(got)
		return true
	case maps.Equal(memory.Requests(d.from.draft.view.Before, before, d.from.draft.view.Rules), d.bytes):
		return true
	case len(has) == 0 || len(d.bytes) == 0:
		got.set(Memory(nil))
		return len(d.bytes) == 0
	}
	blocks := d.on(has[0].Nodes)
	if slices.ContainsFunc(blocks, func(b memory.Block) bool { return b.Size > sizeOf(has, b.Resource) }) {
		return false
	}
	got.set(Memory(blocks))
	return true
}

// restore gives an init container back what later containers have taken over, so that these take it anew. One
// that is lent memory by a group of nodes has none of its own.
func (d memoryDemand) restore(got *Container) {
	all := BlocksOf(slices.Collect(maps.Values(d.from.draft.view.Own.Containers)))
	if !slices.ContainsFunc(got.Memory(), func(b memory.Block) bool {
		_, lent := b.Lent(all)
		return lent
	}) {
		_ = d.keep(podspec.Init, *got, got) // else it stays as it is
	}
}

// on returns the blocks that the container has if it has all on these nodes.
func (d memoryDemand) on(nodes topology.NodeSet) (out []memory.Block) {
	for _, name := range slices.Sorted(maps.Keys(d.bytes)) {
		out = append(out, memory.Block{Nodes: nodes, Resource: name, Size: d.bytes[name]})
	}
	return out
}

func sizeOf(blocks []memory.Block, name v1.ResourceName) (size uint64) {
	for _, b := range blocks {
		if b.Resource == name {
			size += b.Size
		}
	}
	return size
}

// resize gives the container more on the nodes where it has some already, or else on these and others.
func (d memoryDemand) resize(later []Container, hint topology.Hint, got *Container) error {
	has := got.Memory()
	held, reusable := d.from.left(later)
	blocks := d.on(has[0].Nodes)
	if d.from.static.HasRoom(slices.Concat(held, memory.Reuse(reusable, blocks)), blocks) {
		got.set(Memory(blocks))
		return nil
	}
	if hint.Any || !has[0].Nodes.SubsetOf(hint.Nodes) {
		hint.Any, hint.Nodes = false, hint.Nodes.Union(has[0].Nodes)
	}
	blocks, err := d.from.static.Choose(held, reusable, d.bytes, hint)
	if err == nil {
		got.set(Memory(blocks))
	}
	return err
}

// addedCPUs lists which exclusive CPUs a container was given since it started, resize by resize; all of
// them are in its CPUs too. Older agents ignore them: their containers cannot be resized.
type addedCPUs []CPUs

var addedKind = kind{
	name: "addedCPUs", since: 1, none: uncounted{}, sum: func([]Pod) total { return uncounted{} },
	decode: func(raw []byte) (Holding, error) {
		var texts []string
		if err := json.Unmarshal(raw, &texts); err != nil {
			return nil, err
		}
		var out addedCPUs
		for _, text := range texts {
			cpus, err := topology.ParseCPUs(text)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
			out = append(out, CPUs(cpus))
		}
		return out, nil
	},
}

// addedTo lists what was added to CPUs, as far as it is still there.
func addedTo(cpus cpuset.CPUSet, added []cpuset.CPUSet) (out addedCPUs) {
	for _, one := range cpumanager.Layers(cpus, added)[1:] {
		out = append(out, CPUs(one))
	}
	return out
}

// AddedCPUs returns which of the container's CPUs it was given since it started, in this order.
func (c Container) AddedCPUs() (out []cpuset.CPUSet) {
	for _, one := range find(c, addedCPUs(nil)) {
		out = append(out, one.set())
	}
	return out
}

// WithAdded returns the container with this note of which of its CPUs it was given since it started.
func (c Container) WithAdded(added ...cpuset.CPUSet) Container {
	return c.With(addedTo(c.CPUs(), added))
}

// Amended returns the container with the CPUs and memory that a newer record has, if both have some.
func (c Container) Amended(newer Container) Container {
	if cpus := newer.CPUs(); !cpus.IsEmpty() && !c.CPUs().IsEmpty() && !cpus.Equals(c.CPUs()) {
		c = c.With(CPUs(cpus)).WithAdded(newer.AddedCPUs()...)
	}
	if blocks := newer.Memory(); len(blocks) > 0 && len(c.Memory()) > 0 {
		c = c.With(Memory(blocks))
	}
	return c
}

// Kind implements Holding.
func (addedCPUs) Kind() string { return addedKind.name }

func (a addedCPUs) empty() bool { return len(a) == 0 }

func (a addedCPUs) parts() []string {
	var texts []string
	for _, one := range a {
		texts = append(texts, one.String())
	}
	return []string{"of these " + strings.Join(texts, ", then ") + " since it started"}
}

// MarshalJSON writes lists in the kernel's syntax.
func (a addedCPUs) MarshalJSON() ([]byte, error) { return json.Marshal([]CPUs(a)) }

// uncounted is the total and the counts of a kind that only says more of another one.
type uncounted struct{}

func (uncounted) Kind() string                      { return addedKind.name }
func (uncounted) empty() bool                       { return true }
func (uncounted) equal(Holdings) bool               { return true }
func (uncounted) overlaps(Holdings) bool            { return false }
func (u uncounted) change(_, _ Holdings) counts     { return u }
func (u uncounted) taken([]string) total            { return u }
func (uncounted) lasting(sum, Holdings, string) int { return 0 }
func (uncounted) conflict(Holdings) string          { return "" }
