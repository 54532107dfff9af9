package topology

import (
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// oracle is a NodeSet as a map.
type oracle map[NodeID]bool

func anyIDs(t *rapid.T, label string) []NodeID {
	id := rapid.OneOf(rapid.IntRange(0, 63), rapid.IntRange(60, 70), rapid.IntRange(120, 200),
		rapid.IntRange(0, 1100))
	ids := make([]NodeID, 0, 8)
	for _, n := range rapid.SliceOfN(id, 0, 8).Draw(t, label) {
		ids = append(ids, NodeID(n))
	}
	return ids
}

func oracleOf(ids []NodeID) oracle {
	o := oracle{}
	for _, id := range ids {
		o[id] = true
	}
	return o
}

func (o oracle) ids() []NodeID { return sortedKeys(o) }

func (o oracle) keep(want func(NodeID) bool) oracle {
	out := oracle{}
	for id := range o {
		if want(id) {
			out[id] = true
		}
	}
	return out
}

// value returns the set as a binary number.
func (o oracle) value() *big.Int {
	v := new(big.Int)
	for id := range o {
		v.SetBit(v, int(id), 1)
	}
	return v
}

func TestNodeSetAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		as, bs := anyIDs(t, "a"), anyIDs(t, "b")
		a, b := NewNodeSet(as...), NewNodeSet(bs...)
		ma, mb := oracleOf(as), oracleOf(bs)
		union := oracleOf(append(slices.Clone(as), bs...))
		checkSet(t, "a", a, ma)
		checkSet(t, "intersect", a.Intersect(b), ma.keep(func(id NodeID) bool { return mb[id] }))
		checkSet(t, "union", a.Union(b), union)
		checkSet(t, "minus", a.Minus(b), ma.keep(func(id NodeID) bool { return !mb[id] }))
		if got, want := a.SubsetOf(b), len(union) == len(mb); got != want {
			t.Errorf("%s subset of %s: %v", a, b, got)
		}
		if got, want := a.Compare(b), ma.value().Cmp(mb.value()); got != want {
			t.Errorf("%s compare %s: %d, want %d", a, b, got, want)
		}
		if (a == b) != (a.Compare(b) == 0) {
			t.Errorf("%s and %s: == is %v, Compare %d", a, b, a == b, a.Compare(b))
		}
		for _, id := range append(as, bs...) {
			if a.Has(id) != ma[id] {
				t.Errorf("%s has %d: %v", a, id, a.Has(id))
			}
		}
	})
}

// checkSet compares the results of all methods, and that equal sets are ==.
func checkSet(t *rapid.T, what string, got NodeSet, want oracle) {
	if !slices.Equal(got.IDs(), want.ids()) || got.Len() != len(want) ||
		got.IsEmpty() != (len(want) == 0) {
		t.Errorf("%s: %s with %d members, want %v", what, got, got.Len(), want.ids())
	}
	again := NewNodeSet(got.IDs()...)
	if got != again {
		t.Errorf("%s: %s is not == to itself made anew", what, got)
	}
	parsed, err := ParseNodeSet(got.String())
	if err != nil || parsed != got {
		t.Errorf("%s: %q parsed: %s, %v", what, got, parsed, err)
	}
}

func TestNodeSetText(t *testing.T) {
	for _, tt := range []struct {
		text, want string
	}{
		{"", ""}, {" \n", ""}, {"0", "0"}, {"3,1-2", "1-3"}, {"0-3,8\n", "0-3,8"},
		{"62-66,200", "62-66,200"},
	} {
		set, err := ParseNodeSet(tt.text)
		if err != nil || set.String() != tt.want {
			t.Errorf("ParseNodeSet(%q) = %s, %v; want %s", tt.text, set, err, tt.want)
		}
	}
	for _, bad := range []string{"a", "1-", "-1", "3-1", "1,,2", "0 1"} {
		if set, err := ParseNodeSet(bad); err == nil {
			t.Errorf("ParseNodeSet(%q) = %s", bad, set)
		} else if !strings.Contains(err.Error(), bad) {
			t.Errorf("error %q does not show %q", err, bad)
		}
	}
}

func TestNodeSetLeavesOutUnknownNodes(t *testing.T) {
	set := NewNodeSet(NoNode, 3, -7)
	if set != NewNodeSet(3) || set.Has(NoNode) || set.Has(-7) {
		t.Errorf("got %s", set)
	}
	if NewNodeSet(NoNode) != (NodeSet{}) {
		t.Error("a set of unknown nodes is not the zero set")
	}
}

func TestNodeSetIsMapKey(t *testing.T) {
	m := map[NodeSet]int{NewNodeSet(1, 130): 1}
	if m[NewNodeSet(130, 1, 64).Minus(NewNodeSet(64))] != 1 {
		t.Error("an equal set is another key")
	}
}

func FuzzParseNodeSet(f *testing.F) {
	for _, s := range []string{"", "0-3,8", "63-64,128", "1-", "x", "8-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 8 {
			return // a range of billions: the caller must refuse it
		}
		set, err := ParseNodeSet(s)
		if err != nil {
			return
		}
		if again, err := ParseNodeSet(set.String()); err != nil || again != set {
			t.Errorf("%q: %s, then %s, %v", s, set, again, err)
		}
	})
}
