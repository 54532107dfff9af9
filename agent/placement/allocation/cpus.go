package allocation

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// CPUs are the exclusive CPUs of a container. A container without any runs in the shared pool.
type CPUs cpuset.CPUSet

var noCPUs = CPUs(cpuset.New())

var cpuKind = kind{
	name: "cpus", since: 1, none: cpuCounts(nil), provide: newCPUs,
	sum: func(pods []Pod) total { return CPUs(exclusiveOf(slices.Values(pods))) },
	size: func(pod *v1.Pod, rules topology.Rules) func(*v1.Container) (items, bytes uint64) {
		cpus := cpumanager.ExclusiveOf(pod, rules)
		return func(c *v1.Container) (items, bytes uint64) { return uint64(cpus(c)), 0 }
	},
	decode: func(raw []byte) (Holding, error) {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		cpus, err := topology.ParseCPUs(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		return CPUs(cpus), nil
	},
}

// Kind implements Holding.
func (CPUs) Kind() string { return cpuKind.name }

func (c CPUs) set() cpuset.CPUSet { return cpuset.CPUSet(c) }

func (c CPUs) String() string { return c.set().String() }

// Equal compares the sets.
func (c CPUs) Equal(o CPUs) bool { return c.set().Equals(o.set()) }

func (c CPUs) empty() bool { return c.set().IsEmpty() }

func (c CPUs) parts() []string { return []string{"CPUs " + c.String()} }

// MarshalJSON writes a list in the kernel's syntax.
func (c CPUs) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

func (c CPUs) equal(o Holdings) bool { return c.set().Equals(o.CPUs()) }

func (c CPUs) overlaps(o Holdings) bool { return !c.set().Intersection(o.CPUs()).IsEmpty() }

// CPUs returns the container's exclusive CPUs.
func (c Container) CPUs() cpuset.CPUSet { return find(c, noCPUs).set() }

// CPUs returns the exclusive CPUs of the pod's containers.
func (p Pod) CPUs() cpuset.CPUSet { return exclusiveOf(slices.Values([]Pod{p})) }

// CPUs returns the exclusive CPUs of all pods.
func (s State) CPUs() cpuset.CPUSet { return exclusiveOf(maps.Values(s.Pods)) }

// CPUs returns the exclusive CPUs.
func (t Holdings) CPUs() cpuset.CPUSet { return find(t, noCPUs).set() }

// exclusiveOf makes a single union, as each union copies all of its sets.
func exclusiveOf(pods iter.Seq[Pod]) cpuset.CPUSet {
	var all []cpuset.CPUSet
	for p := range pods {
		for _, c := range p.Containers {
			all = append(all, c.CPUs())
		}
	}
	return cpuset.New().Union(all...)
}

// cpuCounts is the number of pods that hold a CPU, by CPU id.
type cpuCounts []uint16

func (n cpuCounts) change(had, has Holdings) counts {
	out := slices.Clone(n)
	for _, id := range has.CPUs().UnsortedList() {
		if more := id + 1 - len(out); more > 0 {
			out = append(out, make([]uint16, more)...)
		}
		out[id]++
	}
	for _, id := range had.CPUs().UnsortedList() {
		out[id]--
	}
	return out
}

func (n cpuCounts) taken([]string) total {
	var cpus []int
	for id, pods := range n {
		if pods > 0 {
			cpus = append(cpus, id)
		}
	}
	return CPUs(cpuset.New(cpus...))
}

func (n cpuCounts) lasting(lasting sum, own Holdings, resource string) (count int) {
	if resource != string(v1.ResourceCPU) {
		return 0
	}
	last := find(lasting, cpuCounts(nil))
	for _, id := range own.CPUs().UnsortedList() {
		if n[id] == last[id] {
			count++
		}
	}
	return count
}

func (n cpuCounts) conflict(own Holdings) string {
	var both []int
	for _, id := range own.CPUs().UnsortedList() {
		if id < len(n) && n[id] > 0 {
			both = append(both, id)
		}
	}
	if len(both) == 0 {
		return ""
	}
	return fmt.Sprintf("CPUs %s belong to another pod", cpuset.New(both...))
}

// exclusiveCPUs hands out exclusive CPUs. Without a static policy it hands out none, and containers
// keep what they have from an earlier policy.
type exclusiveCPUs struct {
	draft *draft
	// static is the policy with the pod's rules; nil: there is none.
	static *cpumanager.Static
	// askedOf returns how many CPUs a container requests, countOf how many it gets: padded to whole
	// cores if the policy wants that.
	askedOf, countOf func(*v1.Container) int
	// partsOf returns what a container has by the agent's own driver; nil: there is no policy.
	partsOf        func(*v1.Container) []part
	free, reusable cpuset.CPUSet
	given          []cpuset.CPUSet // to the pod and its containers
	// whole is the pod's pool, once it is placed, of which slices then chooses parts.
	whole  cpuset.CPUSet
	slices *cpumanager.Static
	// sharers are the containers that share what is left of the pool.
	sharers sets.Set[string]
}

func newCPUs(d *draft) provider {
	p := &exclusiveCPUs{draft: d, static: d.view.Pool(), reusable: cpuset.New(),
		sharers: pooling{d}.sharers(cpumanager.SharesWithinPod)}
	if p.static == nil {
		p.askedOf = func(*v1.Container) int { return 0 }
		p.countOf = p.askedOf
	} else {
		p.free = p.static.Free(d.view.Taken.CPUs())
		p.slices = p.static.Slicing()
		exclusive := cpumanager.ExclusiveOf(d.pod, d.view.Rules)
		p.askedOf = func(c *v1.Container) int {
			if d.view.byClaims(d.pod, c) {
				return 0
			}
			return exclusive(c)
		}
		p.partsOf = func(c *v1.Container) []part { return d.view.parts(d.pod, c) }
		free := p.free // before any container is placed
		p.countOf = func(c *v1.Container) int { return p.static.Padded(free, p.askedOf(c)) }
		if d.pools {
			p.countOf = p.askedOf
		}
	}
	return p
}

// Pool returns the CPU policy with the view's rules; nil: there is none.
func (v View) Pool() *cpumanager.Static {
	if v.CPUs == nil {
		return nil
	}
	return v.CPUs.For(v.CPURules)
}

// CPUResource is the name of the pod's exclusive CPUs in hints and explanations.
func (v View) CPUResource() string {
	if v.Isolated {
		return ResourceIsolated
	}
	return string(v1.ResourceCPU)
}

// ResourceIsolated names isolated CPUs where messages tell them from others. Pods request cpu and
// carry the annotation of that name.
const ResourceIsolated = podspec.AnnotationIsolated

func (p *exclusiveCPUs) ask(c *v1.Container) (demand, error) {
	if c == nil {
		if p.draft.pools {
			return p.pool()
		}
		return cpuDemand{from: p, n: podspec.Peak(p.draft.pod, p.countOf)}, nil
	}
	d := cpuDemand{from: p, container: c.Name, asked: p.askedOf(c), n: p.countOf(c)}
	if p.partsOf != nil {
		if d.parts = p.partsOf(c); len(d.parts) > 0 {
			d.n = countParts(d.parts)
		}
	}
	return d, p.checkClaims(c)
}

// pool implements pooler.
func (p *exclusiveCPUs) pool() (demand, error) {
	d := cpuDemand{from: p}
	if p.static == nil {
		return d, nil
	}
	d.asked = cpumanager.Pool(p.draft.pod, p.draft.view.Rules)
	d.n = p.static.Padded(p.static.Free(p.draft.view.Taken.CPUs()), d.asked)
	if d.n == 0 {
		return d, nil
	}
	return d, checkPool(p.draft.pod, map[v1.ResourceName]uint64{v1.ResourceCPU: uint64(d.asked)},
		func(c *v1.Container) map[v1.ResourceName]uint64 {
			if n := p.askedOf(c); n > 0 {
				return map[v1.ResourceName]uint64{v1.ResourceCPU: uint64(n)}
			}
			return nil
		})
}

// share implements pooler.
func (p *exclusiveCPUs) share(c *v1.Container) Holding {
	if p.whole.IsEmpty() || !p.sharers.Has(c.Name) {
		return nil
	}
	return CPUs(p.free.Union(p.reusable))
}

func (p *exclusiveCPUs) take(container string, kind podspec.Kind) {
	cpus := p.draft.plan.Pod.Containers[container].CPUs()
	if p.static == nil || cpus.IsEmpty() {
		return
	}
	switch {
	case p.draft.pools && container == WholePod:
		p.given = append(p.given, cpus)
		p.whole, p.free, p.reusable = cpus, cpus, cpuset.New()
		return
	case p.sharers.Has(container):
		return // it shares what is left
	}
	p.given = append(p.given, cpus)
	p.free = p.free.Difference(cpus)
	if kind == podspec.Init {
		p.reusable = p.reusable.Union(cpus)
	} else {
		p.reusable = p.reusable.Difference(cpus)
	}
}

// confine leaves only the lent CPUs free, if there are enough.
func (p *exclusiveCPUs) confine(v *View, c *v1.Container, lent []Container) {
	cpus := cpusOf(lent)
	if v.CPUs != nil && cpus.Size() >= cpumanager.Exclusive(p.draft.pod, c, v.Rules) {
		v.Taken = v.Taken.With(CPUs(v.Machine.Online().Difference(cpus)))
	}
}

// check returns an error if the plan leaves no CPUs for containers in the shared pool.
func (p *exclusiveCPUs) check() error {
	if p.static == nil || !p.free.IsEmpty() && !p.draft.view.Isolated && !p.draft.pools ||
		!p.draft.view.Sharing && !cpumanager.Shares(p.draft.pod, p.draft.view.Rules) {
		return nil
	}
	return p.static.CheckShared(p.draft.view.Taken.CPUs().Union(p.given...))
}

// left returns the CPUs that later containers do not keep.
func (p *exclusiveCPUs) left(later []Container) (free, reusable cpuset.CPUSet) {
	kept := cpusOf(later)
	if kept.IsEmpty() {
		return p.free, p.reusable
	}
	return p.free.Difference(kept), p.reusable.Difference(kept)
}

func cpusOf(containers []Container) (all cpuset.CPUSet) {
	for _, c := range containers {
		if cpus := c.CPUs(); !cpus.IsEmpty() {
			all = all.Union(cpus)
		}
	}
	return all
}

// cpuDemand is a demand for n CPUs.
type cpuDemand struct {
	from      *exclusiveCPUs
	container string // WholePod: the pod
	asked     int    // before n was padded
	n         int
	parts     []part // n by claims, where these say
}

func (d cpuDemand) lacks(held Container) []string {
	if held.CPUs().Size() >= d.n {
		return nil
	}
	return []string{fmt.Sprintf("%d exclusive CPUs of %s", d.n, whose(d.container))}
}

func (d cpuDemand) keep(_ podspec.Kind, own Container, kept *Container) bool {
	// Padding stays, although with other free cores there might be less of it.
	cpus := own.CPUs()
	if d.from.static != nil && (!d.suits(cpus) || !cpus.IsSubsetOf(d.from.free.Union(d.from.reusable))) {
		return false
	}
	kept.set(CPUs(cpus))
	return true
}

// suits reports whether these are as many CPUs as are requested, and where.
func (d cpuDemand) suits(cpus cpuset.CPUSet) bool {
	switch {
	case len(d.parts) > 0:
		return d.fits(cpus)
	case d.inPool():
		return cpus.Size() == d.n && cpus.IsSubsetOf(d.from.whole)
	}
	return cpus.Size() == d.from.static.Padded(cpus, d.asked)
}

// inPool reports whether a container gets the CPUs from its pod's pool.
func (d cpuDemand) inPool() bool { return d.from.draft.pools && d.container != WholePod }

func (d cpuDemand) offer(k fixed) offer {
	if d.n == 0 || len(d.parts) > 0 { // where claims' devices are, the claims say
		return offer{}
	}
	free, must := d.from.left(k.later)
	if kept := cpusOf(k.own); !kept.IsEmpty() {
		must = kept
	}
	supply := d.from.static.Supply(free, must, d.n)
	return offerOf(supply, supply.Hints(), d.from.draft.view.CPUResource())
}

func (d cpuDemand) choose(later []Container, hint topology.Hint, got *Container) error {
	has := got.CPUs()
	switch resizes := d.from.draft.view.Keep == KeepResized; {
	case !has.IsEmpty() && resizes && d.wants(has) != has.Size():
		return d.resize(later, hint, got)
	case d.n == 0 || !has.IsEmpty():
		return nil
	case len(d.parts) > 0:
		return d.chooseParts(later, got)
	}
	free, reusable := d.from.left(later)
	by := d.from.static
	if d.inPool() {
		by, hint = d.from.slices, topology.Hint{Any: true}
	}
	cpus, err := by.Choose(free, reusable, d.n, hint)
	got.set(CPUs(cpus))
	return err
}

// refusal says that there are too few isolated CPUs, or that CPUs are given as whole cores only. It
// prefers to name a container's number of CPUs over the pod's.
func (d cpuDemand) refusal(later []Container) error {
	if d.n == 0 {
		return nil
	}
	free, reusable := d.from.left(later)
	if err := d.from.static.CheckIsolated(free, reusable, d.n); err != nil {
		return err
	}
	if d.container == "" && !d.from.draft.pools {
		for c := range podspec.Containers(d.from.draft.pod) {
			if err := d.from.static.CheckAlignment(free, reusable, d.from.countOf(c)); err != nil {
				return err
			}
		}
	}
	return d.from.static.CheckAlignment(free, reusable, d.n)
}
