package topology_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/exhaustive"
)

var policies = []topology.Policy{
	topology.None, topology.BestEffort, topology.Restricted, topology.SingleNUMANode,
}

// parseHints reads "0 preferred, 0-1, any preferred"; "no preference" and "impossible" are two
// special lists.
func parseHints(t *testing.T, s string) []topology.Hint {
	t.Helper()
	hints := []topology.Hint{}
	switch s {
	case "no preference":
		return nil
	case "impossible":
		return hints
	}
	for _, part := range strings.Split(s, ", ") {
		var h topology.Hint
		part, h.Preferred = strings.CutSuffix(part, " preferred")
		if part == "any" {
			h.Any = true
		} else {
			set, err := topology.ParseNodeSet(strings.ReplaceAll(part, "+", ","))
			if err != nil {
				t.Fatal(err)
			}
			h.Nodes = set
		}
		hints = append(hints, h)
	}
	return hints
}

// provider offers each list as one resource.
func provider(t *testing.T, lists ...string) []topology.ResourceHints {
	t.Helper()
	var out []topology.ResourceHints
	for i, s := range lists {
		out = append(out, topology.ResourceHints{
			Resource: "example.com/r" + string(rune('0'+i)),
			Hints:    parseHints(t, s),
		})
	}
	return out
}

// The answers are for best-effort, restricted and single-numa-node, in this order; "!" is a
// rejection.
func TestMerge(t *testing.T) {
	type want [3]string
	for _, c := range []struct {
		name, nodes string
		lists       []string
		want        want
	}{{
		name: "nobody has resources", nodes: "0-1",
		want: want{"0-1 preferred", "0-1 preferred", "any preferred"},
	}, {
		name: "no preference", nodes: "0-1",
		lists: []string{"no preference", "no preference"},
		want:  want{"0-1 preferred", "0-1 preferred", "any preferred"},
	}, {
		name: "one has no preference", nodes: "0-1",
		lists: []string{"no preference", "1 preferred, 0-1"},
		want:  want{"1 preferred", "1 preferred", "1 preferred"},
	}, {
		name: "impossible", nodes: "0-1",
		lists: []string{"impossible"},
		want:  want{"0-1", "!0-1", "!any"},
	}, {
		name: "impossible beside possible", nodes: "0-1",
		lists: []string{"impossible", "1 preferred, 0-1"},
		want:  want{"1", "!1", "!any"},
	}, {
		name: "any, preferred, as a hint", nodes: "0-1",
		lists: []string{"any preferred", "0 preferred"},
		want:  want{"0 preferred", "0 preferred", "0 preferred"},
	}, {
		name: "tie goes to the lower mask", nodes: "0-3",
		lists: []string{"3 preferred, 1 preferred, 2 preferred",
			"3 preferred, 2 preferred, 1 preferred"},
		want: want{"1 preferred", "1 preferred", "1 preferred"},
	}, {
		name: "narrower beats lower", nodes: "0-3",
		lists: []string{"0-1 preferred, 3 preferred"},
		want:  want{"3 preferred", "3 preferred", "3 preferred"},
	}, {
		name: "preferred beats narrower", nodes: "0-3",
		lists: []string{"0, 2-3 preferred", "0, 2-3 preferred"},
		want:  want{"2-3 preferred", "2-3 preferred", "!any"},
	}, {
		name: "both prefer, but not the same nodes", nodes: "0-2",
		lists: []string{"0-1 preferred", "0+2 preferred"},
		want:  want{"0", "!0", "!any"},
	}, {
		name: "both prefer, one inside the other", nodes: "0-2",
		lists: []string{"0-2 preferred", "0-1 preferred"},
		want:  want{"0-1", "!0-1", "!any"},
	}, {
		name: "no node in common", nodes: "0-1",
		lists: []string{"0 preferred", "1 preferred"},
		want:  want{"0-1", "!0-1", "!any"},
	}, {
		name: "cpu on both, device only on node 1", nodes: "0-1",
		lists: []string{"0 preferred, 1 preferred, 0-1", "1 preferred, 0-1"},
		want:  want{"1 preferred", "1 preferred", "1 preferred"},
	}, {
		name: "cpu only fits across, device is on node 1", nodes: "0-1",
		lists: []string{"0-1", "1 preferred, 0-1"},
		want:  want{"0-1", "!0-1", "!any"},
	}, {
		name: "both need two nodes", nodes: "0-3",
		lists: []string{"0-1 preferred, 2-3 preferred, 0-3", "2-3 preferred, 0-3"},
		want:  want{"2-3 preferred", "2-3 preferred", "!any"},
	}, {
		name: "not preferred: the width of the widest need comes first", nodes: "0-3",
		lists: []string{"0 preferred, 0-1, 0-2", "0-1, 0-2, 0-3"},
		want:  want{"0-1", "!0-1", "!any"},
	}, {
		name: "not preferred: narrower than the need, the widest of them", nodes: "0-3",
		lists: []string{"0+2-3, 1-3", "0-1+3, 0 preferred", "0-2, 1+3"},
		want:  want{"1,3", "!1,3", "!any"},
	}, {
		name: "one node", nodes: "0",
		lists: []string{"0 preferred", "0 preferred"},
		want:  want{"0 preferred", "0 preferred", "any preferred"},
	}, {
		name: "nodes the machine lacks", nodes: "0-1",
		lists: []string{"4 preferred, 0-1+4"},
		want:  want{"0-1", "!0-1", "!any"},
	}, {
		name: "sparse ids beyond 64", nodes: "0,64,200",
		lists: []string{"64 preferred, 200 preferred, 64+200", "200 preferred, 0+64+200"},
		want:  want{"200 preferred", "200 preferred", "200 preferred"},
	}} {
		t.Run(c.name, func(t *testing.T) {
			nodes, err := topology.ParseNodeSet(c.nodes)
			if err != nil {
				t.Fatal(err)
			}
			offers := [][]topology.ResourceHints{nil, provider(t, c.lists...), {}}
			for i, policy := range policies[1:] {
				r := topology.Options{}.Merge(policy, nodes, offers)
				got := r.Hint.String()
				if !r.Admit {
					got = "!" + got
				}
				if got != c.want[i] {
					t.Errorf("%s: got %s, want %s", policy, got, c.want[i])
				}
				if oracle := exhaustive.Merge(policy, nodes, offers, nil); r != oracle {
					t.Errorf("%s: got %v, going through all picks gives %v", policy, r, oracle)
				}
			}
		})
	}
}

func TestMergePolicyNone(t *testing.T) {
	offers := [][]topology.ResourceHints{provider(t, "impossible", "0")}
	got := topology.Options{}.Merge(topology.None, topology.NewNodeSet(0, 1), offers)
	if want := (topology.Result{Hint: topology.Hint{Any: true}, Admit: true}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMergeAgreesWithAllPicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 63, 64, 130}),
			1, 5, rapid.ID[int]).Draw(t, "nodes")
		someNodes := rapid.Custom(func(t *rapid.T) topology.NodeSet {
			var members []topology.NodeID
			for _, id := range rapid.SliceOfN(rapid.SampledFrom(ids), 0, len(ids)).Draw(t, "ids") {
				members = append(members, topology.NodeID(id))
			}
			return topology.NewNodeSet(members...)
		})
		hint := rapid.Custom(func(t *rapid.T) topology.Hint {
			h := topology.Hint{Preferred: rapid.Bool().Draw(t, "preferred")}
			if h.Any = rapid.IntRange(0, 9).Draw(t, "any") == 0; !h.Any {
				h.Nodes = someNodes.Draw(t, "set")
			}
			return h
		})
		resource := rapid.Custom(func(t *rapid.T) topology.ResourceHints {
			r := topology.ResourceHints{Resource: "example.com/r"}
			if rapid.IntRange(0, 9).Draw(t, "nil") > 0 {
				r.Hints = rapid.SliceOfN(hint, 0, 6).Draw(t, "hints")
			}
			return r
		})
		offers := rapid.SliceOfN(rapid.SliceOfN(resource, 0, 2), 0, 3).Draw(t, "offers")
		var members []topology.NodeID
		for _, id := range ids {
			members = append(members, topology.NodeID(id))
		}
		nodes := topology.NewNodeSet(members...)
		for _, policy := range policies {
			got, want := topology.Options{}.Merge(policy, nodes, offers),
				exhaustive.Merge(policy, nodes, offers, nil)
			if got != want {
				t.Fatalf("%s on %v: got %v, going through all picks gives %v",
					policy, nodes, got, want)
			}
		}
	})
}

// Four providers with a hint for every set of eight nodes give 4 * 10^9 picks.
func TestMergeManyHints(t *testing.T) {
	var preferred, not []topology.Hint
	for bits := 1; bits < 256; bits++ {
		var ids []topology.NodeID
		for n := range 8 {
			if bits&(1<<n) != 0 {
				ids = append(ids, topology.NodeID(n))
			}
		}
		h := topology.Hint{Nodes: topology.NewNodeSet(ids...)}
		not = append(not, h)
		h.Preferred = len(ids) == 2
		preferred = append(preferred, h)
	}
	nodes := not[254].Nodes
	offers := func(last []topology.Hint) (out [][]topology.ResourceHints) {
		for _, hints := range [][]topology.Hint{preferred, preferred, preferred, last} {
			out = append(out, []topology.ResourceHints{{Resource: "r", Hints: hints}})
		}
		return out
	}
	got := topology.Options{}.Merge(topology.Restricted, nodes, offers(preferred))
	if got.Hint.String() != "0-1 preferred" {
		t.Errorf("all prefer pairs: got %v", got)
	}
	got = topology.Options{}.Merge(topology.BestEffort, nodes, offers(not))
	if got.Hint.String() != "0" {
		t.Errorf("one prefers nothing: got %v", got)
	}
}
