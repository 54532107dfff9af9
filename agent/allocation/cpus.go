package allocation

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// exclusiveCPUs provides CPUs that one container has for itself. Without a static policy nobody
// gets any, and who has some of an earlier policy keeps them.
type exclusiveCPUs struct {
	draft *draft
	// static is the policy as the pod sees it; nil: there is none.
	static *cpumanager.Static
	// askedOf is what a container asks for, countOf that with what pads it to whole cores.
	askedOf, countOf func(*v1.Container) int
	free, reusable   cpuset.CPUSet
	given            []cpuset.CPUSet // to the pod's containers
}

func newCPUs(d *draft) provider {
	p := &exclusiveCPUs{draft: d, static: d.view.Pool(), reusable: cpuset.New()}
	if p.static == nil {
		p.askedOf = func(*v1.Container) int { return 0 }
		p.countOf = p.askedOf
	} else {
		p.free = p.static.Free(d.view.Taken.CPUs)
		p.askedOf = cpumanager.ExclusiveOf(d.pod)
		free := p.free // of all that the pod may have: its containers are counted before any is placed
		p.countOf = func(c *v1.Container) int { return p.static.Padded(free, p.askedOf(c)) }
	}
	return p
}

// Pool is the CPU policy as a pod by the view's rules sees it; nil: there is none.
func (v View) Pool() *cpumanager.Static {
	if v.CPUs == nil {
		return nil
	}
	return v.CPUs.For(v.CPURules)
}

// CPUResource is how hints and explanations call the exclusive CPUs of a pod by the view's rules.
func (v View) CPUResource() string {
	if v.Isolated {
		return ResourceIsolated
	}
	return string(v1.ResourceCPU)
}

// ResourceIsolated are isolated CPUs where there is need to tell them from others. Pods request them
// as CPUs, with the annotation of that name.
const ResourceIsolated = podspec.AnnotationIsolated

func (p *exclusiveCPUs) ask(c *v1.Container) (demand, error) {
	if c == nil {
		return cpuDemand{from: p, n: podspec.Peak(p.draft.pod, p.countOf)}, nil
	}
	return cpuDemand{from: p, container: c.Name, asked: p.askedOf(c), n: p.countOf(c)}, nil
}

func (p *exclusiveCPUs) take(container string, kind podspec.Kind) {
	cpus := p.draft.plan.Pod.Containers[container].CPUs
	if p.static == nil || cpus.IsEmpty() {
		return
	}
	p.given = append(p.given, cpus)
	p.free = p.free.Difference(cpus)
	if kind == podspec.Init {
		p.reusable = p.reusable.Union(cpus)
	} else {
		p.reusable = p.reusable.Difference(cpus)
	}
}

// check reports whether those who share CPUs still have some beside the plan.
func (p *exclusiveCPUs) check() error {
	if p.static == nil || !p.free.IsEmpty() && !p.draft.view.Isolated ||
		!p.draft.view.Sharing && !cpumanager.Shares(p.draft.pod) {
		return nil
	}
	return p.static.CheckShared(p.draft.view.Taken.CPUs.Union(p.given...))
}

// left is what can be had beside what containers keep that start later.
func (p *exclusiveCPUs) left(later []Container) (free, reusable cpuset.CPUSet) {
	kept := cpusOf(later)
	if kept.IsEmpty() {
		return p.free, p.reusable
	}
	return p.free.Difference(kept), p.reusable.Difference(kept)
}

func cpusOf(containers []Container) (all cpuset.CPUSet) {
	for _, c := range containers {
		if !c.CPUs.IsEmpty() {
			all = all.Union(c.CPUs)
		}
	}
	return all
}

// cpuDemand is for n CPUs.
type cpuDemand struct {
	from      *exclusiveCPUs
	container string // "": the pod
	asked     int    // before n was padded
	n         int
}

func (d cpuDemand) lacks(held Container) []string {
	if held.CPUs.Size() >= d.n {
		return nil
	}
	return []string{fmt.Sprintf("%d exclusive CPUs of container %s", d.n, d.container)}
}

func (d cpuDemand) keep(_ podspec.Kind, own Container, kept *Container) bool {
	// What is padded stays, though with other free cores it might be less.
	if d.from.static != nil && (own.CPUs.Size() != d.from.static.Padded(own.CPUs, d.asked) ||
		!own.CPUs.IsSubsetOf(d.from.free.Union(d.from.reusable))) {
		return false
	}
	kept.CPUs = own.CPUs
	return true
}

func (d cpuDemand) offer(k fixed) offer {
	if d.n == 0 {
		return offer{}
	}
	free, must := d.from.left(k.later)
	if kept := cpusOf(k.own); !kept.IsEmpty() {
		must = kept
	}
	supply := d.from.static.Supply(free, must, d.n)
	return offerOf(supply, supply.Hints(), d.from.draft.view.CPUResource())
}

func (d cpuDemand) choose(later []Container, hint topology.Hint, got *Container) (err error) {
	if d.n == 0 || !got.CPUs.IsEmpty() {
		return nil
	}
	free, reusable := d.from.left(later)
	got.CPUs, err = d.from.static.Choose(free, reusable, d.n, hint)
	return err
}

// refusal is that there are fewer isolated CPUs, or that CPUs come as whole cores only; rather of a
// container's number than of the pod's.
func (d cpuDemand) refusal(later []Container) error {
	if d.n == 0 {
		return nil
	}
	free, reusable := d.from.left(later)
	if err := d.from.static.CheckIsolated(free, reusable, d.n); err != nil {
		return err
	}
	if d.container == "" {
		for c := range podspec.Containers(d.from.draft.pod) {
			if err := d.from.static.CheckAlignment(free, reusable, d.from.countOf(c)); err != nil {
				return err
			}
		}
	}
	return d.from.static.CheckAlignment(free, reusable, d.n)
}
