package allocation

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// This file is a kind that only a test has: resource claims. Pods share them, and a driver prepares
// them before containers are created. Nothing of it stands in any other file.

// WithClaims has the table of kinds have claims for the time of the test, or until it is undone.
func WithClaims(t *testing.T) (undo func()) {
	before := kinds
	undo = func() { kinds = before }
	t.Cleanup(undo)
	kinds = append(slices.Clip(kinds), &claimKind)
	return undo
}

// Claims are the claims that a container uses, ordered by name.
type Claims []Claim

// Claim is one of them.
type Claim struct {
	Name string `json:"name"`
	// Devices are the driver's answer; nil: it has not prepared the claim for the pod.
	Devices []string `json:"devices"`
}

var claimKind = kind{
	name: "claims", since: 4, none: claimCounts{}, provide: newClaims,
	sum:   func(pods []Pod) tally { return claimsOf(pods) },
	needs: func(_ *v1.Pod, c *v1.Container) bool { return len(c.Resources.Claims) > 0 },
	size: func(*v1.Pod) func(*v1.Container) (items, bytes uint64) {
		return func(c *v1.Container) (items, bytes uint64) { return uint64(len(c.Resources.Claims)), 0 }
	},
	decode: func(raw []byte) (Holding, error) {
		var out Claims
		err := json.Unmarshal(raw, &out)
		return out, err
	},
	owes: func(before, after Pod, _ func(resource string) bool) []Owed {
		lost := claimsOf([]Pod{before}).Difference(claimsOf([]Pod{after}).Set)
		if lost.Len() == 0 {
			return nil
		}
		return []Owed{{UID: before.UID, Name: before.Name, Kind: "claims", Resource: "driver",
			IDs: sets.List(lost)}}
	},
	owed: func(o Owed) tally { return claimNames{sets.New(o.IDs...)} },
}

func (Claims) Kind() string { return claimKind.name }

func (c Claims) empty() bool { return len(c) == 0 }

func (c Claims) parts() (out []string) {
	for _, one := range c {
		out = append(out, "claim "+one.Name)
	}
	return out
}

func (c Claims) MarshalJSON() ([]byte, error) { return json.Marshal([]Claim(c)) }

func (c Claims) ready() bool {
	return !slices.ContainsFunc(c, func(one Claim) bool { return one.Devices == nil })
}

func (c Claims) intent() Holding {
	out := slices.Clone(c)
	for i := range out {
		out[i].Devices = nil
	}
	return out
}

// Claims are the container's.
func (c Container) Claims() Claims { return find(c, Claims(nil)) }

// Claims are the names of those that all use.
func (t Taken) Claims() sets.Set[string] { return find(t, claimNames{}).Set }

type claimNames struct{ sets.Set[string] }

func claimsOf(pods []Pod) claimNames {
	out := sets.New[string]()
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, one := range c.Claims() {
				out.Insert(one.Name)
			}
		}
	}
	return claimNames{out}
}

func (claimNames) Kind() string { return claimKind.name }

func (c claimNames) empty() bool { return c.Len() == 0 }

func (c claimNames) equal(o Taken) bool { return c.Equal(o.Claims()) }

func (claimNames) overlaps(Taken) bool { return false } // pods share them

type claimCounts struct{ shards[string, int] }

func (n claimCounts) change(had, has Taken) counts {
	for name := range has.Claims() {
		pods, _ := n.get(name)
		n.shards = n.with(name, pods+1)
	}
	for name := range had.Claims() {
		if pods, _ := n.get(name); pods > 1 {
			n.shards = n.with(name, pods-1)
		} else {
			n.shards = n.without(name)
		}
	}
	return n
}

func (n claimCounts) taken([]string) tally { return claimNames{sets.KeySet(maps.Collect(n.all()))} }

func (n claimCounts) firm(lasting sum, own Taken, resource string) (firm int) {
	last := find(lasting, claimCounts{})
	for name := range own.Claims() {
		all, _ := n.get(name)
		if pods, _ := last.get(name); resource == claimKind.name && pods == all {
			firm++
		}
	}
	return firm
}

func (claimCounts) conflict(Taken) string { return "" }

// claimProvider hands out what a container's spec names.
type claimProvider struct{}

func newClaims(*draft) provider { return claimProvider{} }

func (claimProvider) ask(c *v1.Container) (demand, error) {
	var d claimDemand
	if c != nil {
		for _, one := range c.Resources.Claims {
			d = append(d, Claim{Name: one.Name})
		}
	}
	return d, nil
}

func (claimProvider) take(string, podspec.Kind) {}

type claimDemand Claims

func (d claimDemand) lacks(held Container) (out []string) {
	for _, one := range d[min(len(d), len(held.Claims())):] {
		out = append(out, "claim "+one.Name)
	}
	return out
}

func (d claimDemand) keep(_ podspec.Kind, own Container, kept *Container) bool {
	kept.set(own.Claims())
	return len(own.Claims()) == len(d)
}

func (claimDemand) offer(fixed) offer { return offer{} }

func (d claimDemand) choose(_ []Container, _ topology.Hint, got *Container) error {
	if len(got.Claims()) == 0 {
		got.set(Claims(d))
	}
	return nil
}
