package allocation

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// part is a container's share of one device of the agent's own driver of CPUs: n exclusive CPUs of
// these nodes, or of any if none is named. The scheduler chose the device; the agent chooses the CPUs.
type part struct {
	of    Claim
	nodes topology.NodeSet
	n     int
}

// parts lists what the container has by the agent's own driver.
func (v View) parts(pod *v1.Pod, c *v1.Container) (out []part) {
	for _, one := range wantedClaims(pod, c, v.Claims.Uses) {
		for _, d := range one.Devices {
			if n := d.CPUs(); n > 0 && v.isOwn(d) {
				out = append(out, part{one, claim.NodeOfCPUDevice(d.Name), n})
			}
		}
	}
	return out
}

// ExclusiveOf returns how many exclusive CPUs each container of the pod is to get: those of its claims
// or, without claims for CPUs, those that it requests.
func (v View) ExclusiveOf(pod *v1.Pod) func(*v1.Container) int {
	requested := cpumanager.ExclusiveOf(pod, v.Rules)
	return func(c *v1.Container) int {
		if v.byClaims(pod, c) {
			return countParts(v.parts(pod, c))
		}
		return requested(c)
	}
}

func (v View) isOwn(d claim.Device) bool { return v.CPUDriver != "" && d.Driver == v.CPUDriver }

func countParts(parts []part) (n int) {
	for _, p := range parts {
		n += p.n
	}
	return n
}

// on returns the CPUs of the part's nodes.
func (p part) on(m *topology.Machine) cpuset.CPUSet {
	if p.nodes.IsEmpty() {
		return m.Online()
	}
	return m.CPUsOfNodes(p.nodes)
}

// checkSole returns why a claim with CPUs cannot be the container's: such a claim serves one.
func (p *exclusiveCPUs) checkSole(c *v1.Container, parts []part) error {
	v := &p.draft.view
	refuse := func(of Claim, other string) error {
		return &Rejection{Reason: ReasonClaimCPUs, Message: fmt.Sprintf("%s gives CPUs, which "+
			"only one container can have, and %s uses it too; make a claim for each", of, other)}
	}
	for _, one := range parts {
		if v.ClaimHolder != nil {
			if other := v.ClaimHolder(one.of.UID); other != "" {
				return refuse(one.of, "pod "+other)
			}
		}
		for other := range podspec.Containers(p.draft.pod) {
			if other.Name == c.Name {
				continue
			}
			for _, its := range v.parts(p.draft.pod, other) {
				if its.of.UID == one.of.UID && overlap(its.of, one.of) {
					return refuse(one.of, "container "+other.Name)
				}
			}
		}
	}
	return nil
}

// overlap reports whether both have a device in common.
func overlap(a, b Claim) bool {
	of := func(d claim.Device) string { return d.Request + " " + d.Pool + "/" + d.Name + " " + d.ShareID }
	devices := sets.New[string]()
	for _, d := range a.Devices {
		devices.Insert(of(d))
	}
	for _, d := range b.Devices {
		if devices.Has(of(d)) {
			return true
		}
	}
	return false
}

// ClaimHolder names a pod that uses the claim; "": none does. lasting: terminating pods do not count.
func (l Ledger) ClaimHolder(uid types.UID, lasting bool) string {
	for _, e := range l.All() {
		if find(e.Assigned, claimUIDs{}).Has(uid) && !(lasting && e.Hold == Terminating) {
			return e.Name
		}
	}
	return ""
}

// fits reports whether these CPUs are what the parts give.
func (d cpuDemand) fits(cpus cpuset.CPUSet) bool {
	left, m := cpus, d.from.draft.view.Machine
	for i, p := range d.parts {
		its := left.Intersection(p.on(m))
		last := true // of those with these nodes
		for _, later := range d.parts[i+1:] {
			last = last && later.nodes != p.nodes
		}
		switch {
		case its.Size() < p.n:
			return false
		case last && its.Size() > p.n:
			return false
		}
		left = left.Difference(cpuset.New(its.List()[:p.n]...))
	}
	return left.IsEmpty()
}

// partShortageError says that the nodes of a part have too few free CPUs.
type partShortageError struct {
	part
	err error
}

func (e *partShortageError) Error() string {
	where := "the machine"
	if !e.nodes.IsEmpty() {
		where = "NUMA node " + e.nodes.String()
	}
	return fmt.Sprintf("%s has %d CPUs of %s: %v", e.of, e.n, where, e.err)
}

func (e *partShortageError) Unwrap() error { return e.err }

// Reason returns the reason for rejecting a pod.
func (*partShortageError) Reason() string { return ReasonClaimCPUs }

// chooseParts chooses CPUs for each part on its nodes.
func (d cpuDemand) chooseParts(later []Container, got *Container) error {
	free, reusable := d.from.left(later)
	all := cpuset.New()
	for _, p := range d.parts {
		on := p.on(d.from.draft.view.Machine)
		cpus, err := d.from.static.Choose(free.Intersection(on), reusable.Intersection(on), p.n,
			topology.Hint{Nodes: p.nodes, Any: p.nodes.IsEmpty()})
		if err != nil {
			return &partShortageError{p, err}
		}
		all, free, reusable = all.Union(cpus), free.Difference(cpus), reusable.Difference(cpus)
	}
	got.set(CPUs(all))
	return nil
}

// ByRequests returns the exclusive CPUs of containers that have none by claims of that driver.
func (s State) ByRequests(driver string) cpuset.CPUSet {
	out := cpuset.New()
	for _, pod := range s.Pods {
		for _, c := range pod.Containers {
			if cpus := c.CPUs(); !cpus.IsEmpty() && !c.Claims().giveCPUs(driver) {
				out = out.Union(cpus)
			}
		}
	}
	return out
}

func (c Claims) giveCPUs(driver string) bool {
	for _, one := range c {
		for _, d := range one.Devices {
			if d.CPUs() > 0 && d.Driver == driver {
				return true
			}
		}
	}
	return false
}
