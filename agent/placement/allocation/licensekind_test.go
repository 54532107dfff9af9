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

// This file is a kind that only a test has: licenses, which a container names in its environment.
// Pods share them, and a server grants them before containers are created. Nothing of it stands in
// any other file.

// WithLicenses has the table of kinds have licenses for the time of the test, or until it is undone.
func WithLicenses(t *testing.T) (undo func()) {
	before := kinds
	undo = func() { kinds = before }
	t.Cleanup(undo)
	kinds = append(slices.Clip(kinds), &licenseKind)
	return undo
}

// Licenses are the licenses that a container uses, ordered by name.
type Licenses []License

// License is one of them.
type License struct {
	Name string `json:"name"`
	// Devices are the driver's answer; nil: it has not prepared the license for the pod.
	Devices []string `json:"devices"`
}

var licenseKind = kind{
	name: "licenses", since: 5, none: licenseCounts{}, provide: newLicenses,
	sum:   func(pods []Pod) total { return licensesOf(pods) },
	needs: func(_ *v1.Pod, c *v1.Container) bool { return len(c.Env) > 0 },
	size: func(*v1.Pod, topology.Rules) func(*v1.Container) (items, bytes uint64) {
		return func(c *v1.Container) (items, bytes uint64) { return uint64(len(c.Env)), 0 }
	},
	decode: func(raw []byte) (Holding, error) {
		var out Licenses
		err := json.Unmarshal(raw, &out)
		return out, err
	},
	releases: func(before, after Pod, _ func(resource string) bool) []PendingRelease {
		lost := licensesOf([]Pod{before}).Difference(licensesOf([]Pod{after}).Set)
		if lost.Len() == 0 {
			return nil
		}
		return []PendingRelease{{UID: before.UID, Name: before.Name, Kind: "licenses", Resource: "driver",
			IDs: sets.List(lost)}}
	},
	releasing: func(o PendingRelease) total { return licenseNames{sets.New(o.IDs...)} },
}

func (Licenses) Kind() string { return licenseKind.name }

func (c Licenses) empty() bool { return len(c) == 0 }

func (c Licenses) parts() (out []string) {
	for _, one := range c {
		out = append(out, "license "+one.Name)
	}
	return out
}

func (c Licenses) MarshalJSON() ([]byte, error) { return json.Marshal([]License(c)) }

func (c Licenses) ready() bool {
	return !slices.ContainsFunc(c, func(one License) bool { return one.Devices == nil })
}

func (c Licenses) intent() Holding {
	out := slices.Clone(c)
	for i := range out {
		out[i].Devices = nil
	}
	return out
}

// Licenses are the container's.
func (c Container) Licenses() Licenses { return find(c, Licenses(nil)) }

// Licenses are the names of those that all use.
func (t Holdings) Licenses() sets.Set[string] { return find(t, licenseNames{}).Set }

type licenseNames struct{ sets.Set[string] }

func licensesOf(pods []Pod) licenseNames {
	out := sets.New[string]()
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, one := range c.Licenses() {
				out.Insert(one.Name)
			}
		}
	}
	return licenseNames{out}
}

func (licenseNames) Kind() string { return licenseKind.name }

func (c licenseNames) empty() bool { return c.Len() == 0 }

func (c licenseNames) equal(o Holdings) bool { return c.Equal(o.Licenses()) }

func (licenseNames) overlaps(Holdings) bool { return false } // pods share them

type licenseCounts struct{ shards[string, int] }

func (n licenseCounts) change(had, has Holdings) counts {
	for name := range has.Licenses() {
		pods, _ := n.get(name)
		n.shards = n.with(name, pods+1)
	}
	for name := range had.Licenses() {
		if pods, _ := n.get(name); pods > 1 {
			n.shards = n.with(name, pods-1)
		} else {
			n.shards = n.without(name)
		}
	}
	return n
}

func (n licenseCounts) taken([]string) total { return licenseNames{sets.KeySet(maps.Collect(n.all()))} }

func (n licenseCounts) lasting(lasting sum, own Holdings, resource string) (count int) {
	last := find(lasting, licenseCounts{})
	for name := range own.Licenses() {
		all, _ := n.get(name)
		if pods, _ := last.get(name); resource == licenseKind.name && pods == all {
			count++
		}
	}
	return count
}

func (licenseCounts) conflict(Holdings) string { return "" }

// licenseProvider hands out what a container's spec names.
type licenseProvider struct{}

func newLicenses(*draft) provider { return licenseProvider{} }

func (licenseProvider) ask(c *v1.Container) (demand, error) {
	var d licenseDemand
	if c != nil {
		for _, one := range c.Env {
			d = append(d, License{Name: one.Name})
		}
	}
	return d, nil
}

func (licenseProvider) take(string, podspec.Kind) {}

type licenseDemand Licenses

func (d licenseDemand) lacks(held Container) (out []string) {
	for _, one := range d[min(len(d), len(held.Licenses())):] {
		out = append(out, "license "+one.Name)
	}
	return out
}

func (d licenseDemand) keep(_ podspec.Kind, own Container, kept *Container) bool {
	kept.set(own.Licenses())
	return len(own.Licenses()) == len(d)
}

func (licenseDemand) offer(fixed) offer { return offer{} }

func (d licenseDemand) choose(_ []Container, _ topology.Hint, got *Container) error {
	if len(got.Licenses()) == 0 {
		got.set(Licenses(d))
	}
	return nil
}
