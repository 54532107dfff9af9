package allocation

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Claims are the resource claims that a container uses, in the order of its spec. The scheduler has
// allocated their devices, and pods share them. A driver prepares them: agent/placement/claims knows which are.
type Claims []Claim

// Claim is one of them.
type Claim struct {
	// Name is its name in spec.resourceClaims; "": it stands for extended resources.
	Name string
	// Request is the request that the container is limited to; "": it uses all.
	Request string
	// UID is "" while the API server has not told of the claim.
	UID types.UID
	// Devices are those of the requests that the container uses.
	Devices []claim.Device
}

// PodClaims are the resource claims of a pod, as far as they can be used.
type PodClaims struct {
	Uses []claim.Use
	Lack claim.Lack
}

var claimKind = kind{
	name: "claims", since: 4, none: noCounts{}, provide: newClaims,
	sum:   func(pods []Pod) total { return claimUIDsOf(pods) },
	needs: func(pod *v1.Pod, c *v1.Container) bool { return len(wantedClaims(pod, c, nil)) > 0 },
	size: func(pod *v1.Pod, _ topology.Rules) func(*v1.Container) (items, bytes uint64) {
		return func(c *v1.Container) (items, bytes uint64) {
			return uint64(len(wantedClaims(pod, c, nil))), 0
		}
	},
	decode: decodeClaims,
}

// claimRecord and claimDevice are a Claim as it is written.
type (
	claimRecord struct {
		Name    string        `json:"name,omitempty"`
		Request string        `json:"request,omitempty"`
		UID     types.UID     `json:"uid,omitempty"`
		Devices []claimDevice `json:"devices,omitempty"`
	}
	claimDevice struct {
		Request string `json:"request,omitempty"`
		Driver  string `json:"driver"`
		Pool    string `json:"pool"`
		Name    string `json:"name"`
		ShareID string `json:"shareID,omitempty"`
		Admin   bool   `json:"admin,omitempty"`
		Nodes   string `json:"nodes,omitempty"`
		PCI     string `json:"pci,omitempty"`
		Root    string `json:"root,omitempty"`
		UUID    string `json:"uuid,omitempty"`
		Parent  string `json:"parent,omitempty"`
		claimAmounts
	}
)

// MarshalJSON writes a list of claims.
func (c Claims) MarshalJSON() ([]byte, error) {
	out := make([]claimRecord, len(c))
	for i, one := range c {
		out[i] = claimRecord{Name: one.Name, Request: one.Request, UID: one.UID}
		for _, d := range one.Devices {
			record := claimDevice{Request: d.Request, Driver: d.Driver, Pool: d.Pool, Name: d.Name,
				ShareID: d.ShareID, Admin: d.Admin, PCI: d.Place.PCI, Root: d.Place.Root, UUID: d.Place.UUID,
				Parent: d.Place.Parent, claimAmounts: amountsOf(d)}
			if !d.Place.Nodes.IsEmpty() {
				record.Nodes = d.Place.Nodes.String()
			}
			out[i].Devices = append(out[i].Devices, record)
		}
	}
	return json.Marshal(out)
}

func decodeClaims(raw []byte) (Holding, error) {
	var records []claimRecord
	if err := json.Unmarshal(raw, &records); err != nil {
		return nil, err
	}
	var out Claims
	for _, r := range records {
		one := Claim{Name: r.Name, Request: r.Request, UID: r.UID}
		for _, d := range r.Devices {
			nodes, err := topology.ParseNodeSet(d.Nodes)
			if d.Nodes != "" && err != nil {
				return nil, fmt.Errorf("device %s of claim %s: %w", d.Name, r.Name, err)
			}
			one.Devices = append(one.Devices, d.claimAmounts.of(claim.Device{Request: d.Request, Driver: d.Driver,
				Pool: d.Pool, Name: d.Name, ShareID: d.ShareID, Admin: d.Admin,
				Place: claim.Place{Nodes: nodes, PCI: d.PCI, Root: d.Root, UUID: d.UUID,
					Parent: d.Parent}}))
		}
		out = append(out, one)
	}
	return out, nil
}

// Kind implements Holding.
func (Claims) Kind() string { return claimKind.name }

func (c Claims) empty() bool { return len(c) == 0 }

func (c Claims) parts() (out []string) {
	for _, one := range c {
		out = append(out, one.String())
	}
	return out
}

// String names the claim as a user knows it.
func (c Claim) String() string {
	switch {
	case c.Name == "":
		return "the claim for extended resources"
	case c.Request != "":
		return "claim " + c.Name + "/" + c.Request
	}
	return "claim " + c.Name
}

// Claims are the container's.
func (c Container) Claims() Claims { return find(c, Claims(nil)) }

// ClaimUIDs returns the claims that the pod's containers have, ascending, as far as they are known.
func (p Pod) ClaimUIDs() []types.UID {
	return sets.List(claimUIDsOf([]Pod{p}).Delete(""))
}

// nodes returns where the claim's devices are, without those with administrative access, which the
// claim does not own; empty: unknown.
func (c Claim) nodes() topology.NodeSet {
	var out topology.NodeSet
	for _, d := range c.Devices {
		if !d.Admin {
			out = out.Union(d.Place.Nodes)
		}
	}
	return out
}

// claimUIDs are the claims that pods use. Other pods may use them too.
type claimUIDs struct{ sets.Set[types.UID] }

func claimUIDsOf(pods []Pod) claimUIDs {
	out := sets.New[types.UID]()
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, one := range c.Claims() {
				out.Insert(one.UID)
			}
		}
	}
	return claimUIDs{out}
}

func (claimUIDs) Kind() string { return claimKind.name }

func (c claimUIDs) empty() bool { return c.Len() == 0 }

func (c claimUIDs) equal(o Holdings) bool { return c.Equal(find(o, claimUIDs{}).Set) }

func (claimUIDs) overlaps(Holdings) bool { return false }

// noCounts counts nothing: no pod takes a claim from another one.
type noCounts struct{}

func (n noCounts) change(_, _ Holdings) counts { return n }

func (noCounts) taken([]string) total { return claimUIDs{} }

func (noCounts) lasting(sum, Holdings, string) int { return 0 }

func (noCounts) conflict(Holdings) string { return "" }

// claimProvider hands out what the scheduler has allocated.
type claimProvider struct{ draft *draft }

func newClaims(d *draft) provider { return claimProvider{d} }

// ask returns the claims that the container uses, as far as they are known. It also returns an error if
// a pod has a device of one of them from a plugin, or while any of the pod's claims cannot be used.
func (p claimProvider) ask(c *v1.Container) (demand, error) {
	d := claimDemand{from: p}
	if c == nil {
		for one := range podspec.Containers(p.draft.pod) {
			d.wants = append(d.wants, p.wanted(one)...)
		}
	} else {
		d.container, d.wants = c.Name, p.wanted(c)
	}
	if err := p.owned(d.wants); err != nil {
		return d, rejected(err)
	}
	if lack := p.draft.view.Claims.Lack; lack.Reason != "" {
		return d, &Unready{Claim: lack}
	}
	return d, nil
}

func (p claimProvider) wanted(c *v1.Container) Claims {
	return wantedClaims(p.draft.pod, c, p.draft.view.Claims.Uses)
}

// wantedClaims returns the claims that the container uses, as far as they are known.
func wantedClaims(pod *v1.Pod, c *v1.Container, known []claim.Use) (out Claims) {
	parts, err := claim.PartsOf(pod, c)
	if err != nil { // some claim was not created yet
		for _, asked := range c.Resources.Claims {
			out = append(out, Claim{Name: asked.Name, Request: asked.Request})
		}
		return out
	}
	for _, part := range parts {
		one := Claim{Name: part.Pod, Request: part.Request}
		for _, use := range known {
			if use.Pod == part.Pod {
				one.UID = use.UID
				one.Devices = part.Of(use.Devices)
			}
		}
		out = append(out, one)
	}
	return out
}

// places says where the devices of claims are that a container, or the pod, uses.
func (p claimProvider) places(container string) (out []string) {
	for c := range podspec.Containers(p.draft.pod) {
		if container != "" && c.Name != container {
			continue
		}
		for _, one := range p.wanted(c) {
			if nodes := one.nodes(); !nodes.IsEmpty() {
				out = append(out, fmt.Sprintf("%s has devices on NUMA node %s", one, nodes))
			}
		}
	}
	return out
}

func (claimProvider) take(string, podspec.Kind) {}

// claimDemand is a demand for the claims of a container, or of all.
type claimDemand struct {
	from      claimProvider
	container string // "": the pod
	wants     Claims
}

func (d claimDemand) lacks(held Container) (out []string) {
	for _, want := range d.wants {
		if !slices.ContainsFunc(held.Claims(), want.same) {
			out = append(out, fmt.Sprintf("%s of container %s", want, d.container))
		}
	}
	return out
}

// same reports whether both are the same part of the same claim. Of one whose UID is not known the
// name counts.
func (c Claim) same(o Claim) bool {
	return c.Name == o.Name && c.Request == o.Request && (c.UID == o.UID || c.UID == "")
}

// keep keeps the claims that were recorded, if they are still those. Their devices are those of today
// as far as they are known: a waiting pod may have been recorded before the scheduler allocated them,
// or before it was known which hardware they are.
func (d claimDemand) keep(_ podspec.Kind, own Container, kept *Container) bool {
	has := slices.Clone(own.Claims())
	if !slices.EqualFunc(d.wants, has, Claim.same) {
		return false
	}
	for i, want := range d.wants {
		if len(want.Devices) > 0 {
			has[i] = want
		}
	}
	kept.set(has)
	return true
}

// offer has one hint for each claim: where its devices are.
func (d claimDemand) offer(fixed) (out offer) {
	all := d.from.draft.view.Machine.NodeSet()
	for _, want := range d.wants {
		one := offer{hints: []topology.ResourceHints{{Resource: want.String()}}}
		if nodes := want.nodes(); !nodes.IsEmpty() && nodes.SubsetOf(all) {
			one = offerOf(topology.Supply{
				Nodes: all.IDs(), Must: nodes, Width: nodes.Len(), NarrowOnly: true,
				Holds: func(topology.NodeSet, []int) bool { return true },
			}, []topology.Hint{{Nodes: nodes, Preferred: true}}, want.String())
		}
		out.hints = append(out.hints, one.hints...)
		out.supplies = append(out.supplies, one.supplies...)
	}
	return out
}

func (d claimDemand) choose(_ []Container, _ topology.Hint, got *Container) error {
	if len(got.Claims()) == 0 {
		got.set(d.wants)
	}
	return nil
}
