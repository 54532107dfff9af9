package allocation

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// ReasonClaimCPUs is our own: a driver of resource claims may not hand out the CPUs of a claim, or
// the claim gives CPUs to another container.
const ReasonClaimCPUs = "ResourceClaimCPUsUnavailable"

// CPUs returns the CPUs that the claims' devices name; unknown: a driver chooses others, and does not
// tell which.
func (c Claims) CPUs() (known cpuset.CPUSet, unknown bool) {
	for _, one := range c {
		for _, d := range one.Devices {
			if d.CPUs() == 0 {
				continue
			}
			cpus, err := topology.ParseCPUs(d.Place.CPUs)
			if unknown = unknown || err != nil || cpus.IsEmpty(); err == nil {
				known = known.Union(cpus)
			}
		}
	}
	return known, unknown
}

// byClaims reports whether the container gets CPUs by its claims: then it gets none by its requests.
func (v View) byClaims(pod *v1.Pod, c *v1.Container) bool {
	return slices.ContainsFunc(wantedClaims(pod, c, v.Claims.Uses), func(one Claim) bool {
		return slices.ContainsFunc(one.Devices, func(d claim.Device) bool { return d.CPUs() > 0 })
	})
}

// checkClaims returns why drivers may not hand out the CPUs of the container's claims: others have
// them, or may have them.
func (p *exclusiveCPUs) checkClaims(c *v1.Container) error {
	if p.static == nil {
		return nil // no container has CPUs of its own
	}
	if err := p.checkSole(c, p.draft.view.parts(p.draft.pod, c)); err != nil {
		return err
	}
	for _, one := range wantedClaims(p.draft.pod, c, p.draft.view.Claims.Uses) {
		for _, d := range one.Devices {
			if d.CPUs() == 0 || p.draft.view.isOwn(d) {
				continue
			}
			if err := p.checkDevice(d); err != nil {
				return &Rejection{Reason: ReasonClaimCPUs, Message: fmt.Sprintf(
					"%s has the device %s of driver %s, which hands out %v", one, d.Name, d.Driver, err)}
			}
		}
	}
	return nil
}

func (p *exclusiveCPUs) checkDevice(d claim.Device) error {
	v, lent := &p.draft.view, p.static.Lent()
	cpus, err := topology.ParseCPUs(d.Place.CPUs)
	if err != nil || cpus.IsEmpty() { // the driver chooses, of those that it has there
		cpus = lent
		if nodes := d.Place.Nodes; !nodes.IsEmpty() {
			cpus = lent.Intersection(v.Machine.CPUsOfNodes(nodes))
		}
		if has := int(d.Place.Has.CPUs); has > cpus.Size() {
			return fmt.Errorf("%d CPUs, and --dra-cpus gives drivers of resource claims %d there (%q); "+
				"reserve the others at the driver, or add them", has, cpus.Size(), cpus)
		}
	}
	others := cpus.Intersection(v.Taken.CPUs())
	if !others.IsEmpty() && v.Holder != nil {
		if name := v.Holder(others); name != "" {
			return fmt.Errorf("CPUs %s, which pod %s has exclusively", others, name)
		}
	}
	return p.static.CheckLent(cpus, others)
}

// HolderOf names a pod that has some of the CPUs exclusively; "": none is known.
func (l Ledger) HolderOf(cpus cpuset.CPUSet) string {
	var names []string
	for _, e := range l.All() {
		if !e.Assigned.CPUs().Intersection(cpus).IsEmpty() && e.Name != "" {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names[:min(len(names), 1)], "")
}

// claimedMemory returns the memory that the pods have by claims. A claim that several containers
// use, or a pod that is listed twice, counts once.
func claimedMemory(pods []Pod) []memory.Block {
	var all Claims
	for _, p := range pods {
		for _, c := range p.Containers {
			all = append(all, c.Claims()...)
		}
	}
	return all.memory()
}

// memory lists what the claims have on nodes.
func (c Claims) memory() (out []memory.Block) {
	type key struct{ claim, driver, pool, device, share string }
	seen := map[key]bool{}
	for _, one := range c {
		for _, d := range one.Devices {
			at := key{string(one.UID), d.Driver, d.Pool, d.Name, d.ShareID}
			of, bytes := d.Memory()
			if bytes == 0 || d.Place.Nodes.IsEmpty() || seen[at] {
				continue
			}
			seen[at] = true
			out = append(out, memory.Block{Nodes: d.Place.Nodes, Resource: of, Size: bytes})
		}
	}
	return out
}

// ofClaims returns the memory that the draft's pod has by its claims.
func (p *ownMemory) ofClaims() []memory.Block {
	var all Claims
	for c := range podspec.Containers(p.draft.pod) {
		all = append(all, wantedClaims(p.draft.pod, c, p.draft.view.Claims.Uses)...)
	}
	return all.memory()
}

// claimAmounts is the record of a device's CPUs and memory.
type claimAmounts struct {
	CPUs      string       `json:"cpus,omitempty"`
	Has       claim.Amount `json:"has,omitzero"`
	Consumed  claim.Amount `json:"consumed,omitzero"`
	PageBytes int64        `json:"pageBytes,omitempty"`
}

func amountsOf(d claim.Device) claimAmounts {
	return claimAmounts{d.Place.CPUs, d.Place.Has, d.Consumed, d.Place.PageBytes}
}

// of returns the device with the amounts.
func (a claimAmounts) of(d claim.Device) claim.Device {
	d.Place.CPUs, d.Place.Has, d.Place.PageBytes = a.CPUs, a.Has, a.PageBytes
	d.Consumed = a.Consumed
	return d
}
