package cpumanager

import (
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"
)

// A bitmap behaves like cpuset.CPUSet.
func TestBitmap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		highest := rapid.IntRange(0, 200).Draw(t, "highest")
		all := newBitmap(highest)
		for id := range highest + 1 {
			all[id/64] |= 1 << (id % 64)
		}
		draw := func(label string) cpuset.CPUSet {
			return cpuset.New(rapid.SliceOf(rapid.IntRange(0, highest)).Draw(t, label)...)
		}
		same := func(what string, got bitmap, want cpuset.CPUSet) {
			if !got.cpuSet().Equals(want) || !slices.Equal(got.ids(), want.List()) {
				t.Fatalf("%s: got %s, want %s", what, got.cpuSet(), want)
			}
			if got.size() != want.Size() {
				t.Fatalf("%s: %d of %s", what, got.size(), want)
			}
		}
		setA, setB := draw("a"), draw("b")
		a, b := all.only(setA), all.only(setB)
		same("only", a, setA)
		same("only some", a.only(setB), setA.Intersection(setB))
		same("strangers", all.only(setA.Union(cpuset.New(-1, highest+1, 1000))), setA)
		same("and", a.and(b), setA.Intersection(setB))
		same("or", a.or(b), setA.Union(setB))
		same("minus", a.minus(b), setA.Difference(setB))
		same("within", a.within(b.mask()), setA.Intersection(setB))
		if n := a.count(b.mask()); n != setA.Intersection(setB).Size() {
			t.Fatalf("%d of %s in %s", n, setB, setA)
		}
		if a.contains(b.mask()) != setB.IsSubsetOf(setA) {
			t.Fatalf("%s contains %s: %v", setA, setB, a.contains(b.mask()))
		}

		limit := rapid.IntRange(-1, highest).Draw(t, "limit")
		common := setA.Intersection(setB).List()
		moved := cpuset.New(common[:min(max(limit, 0), len(common))]...)
		from, to := a.clone(), b.clone()
		if n := from.move(to, b.mask(), limit); n != moved.Size() {
			t.Fatalf("moved %d of %v, limit %d", n, common, limit)
		}
		same("what is left", from, setA.Difference(moved))
		same("what it went to", to, setB.Union(moved))
		to = newBitmap(highest)
		a.clone().move(to, b.mask(), limit)
		same("what was moved", to, moved)
		to = b.clone()
		to.add(a.mask())
		same("add", to, setA.Union(setB))
		same("a as it was", a, setA)
		same("b as it was", b, setB)
	})
}
