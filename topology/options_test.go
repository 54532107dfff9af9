package topology_test

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/exhaustive"
	"github.com/numalet/numalet/topology/topologytest"
)

// fourNodes has nodes 0 and 2 close to each other, as well as 1 and 3; 0 and 1 are far apart.
func fourNodes(t *testing.T) *topology.Machine {
	t.Helper()
	spec := topology.Spec{CPUs: []topology.CPU{{ID: 0, Node: 0}}}
	for i, row := range [][]int{{10, 40, 12, 30}, {40, 10, 30, 12}, {12, 30, 10, 20},
		{30, 12, 20, 10}} {
		n := topology.Node{ID: topology.NodeID(i), Distances: map[topology.NodeID]int{}}
		for j, d := range row {
			n.Distances[topology.NodeID(j)] = d
		}
		spec.Nodes = append(spec.Nodes, n)
	}
	return topologytest.Of(t, spec)
}

func TestPreferClosest(t *testing.T) {
	m := fourNodes(t)
	for _, c := range []struct {
		name  string
		lists []string
		want  string
	}{{
		"preferred pairs", []string{"0-1 preferred, 0+2 preferred, 2-3 preferred"}, "0,2 preferred",
	}, {
		"equally close: the lower ids", []string{"1+3 preferred, 0+2 preferred"}, "0,2 preferred",
	}, {
		"narrower beats closer", []string{"1 preferred, 0+2 preferred"}, "1 preferred",
	}, {
		"preferred beats closer", []string{"0-1 preferred, 0+2"}, "0-1 preferred",
	}, {
		"no preference", []string{"no preference"}, "0-3 preferred",
	}, {
		"not preferred, of the width needed", []string{"0-1, 2-3, 0-3", "0-1, 2-3, 0-2"}, "2-3",
	}, {
		"not preferred, narrower than needed", []string{"0-2", "0-1+3", "0-1, 0+2-3, 1-3"}, "0-1",
	}} {
		t.Run(c.name, func(t *testing.T) {
			offers := [][]topology.ResourceHints{provider(t, c.lists...)}
			got := topology.PreferClosest(m).Merge(topology.BestEffort, m.NodeSet(), offers)
			if got.Hint.String() != c.want {
				t.Errorf("got %v, want %s", got.Hint, c.want)
			}
			oracle := exhaustive.Merge(topology.BestEffort, m.NodeSet(), offers, m.Distance)
			if got != oracle {
				t.Errorf("got %v, going through all picks gives %v", got, oracle)
			}
		})
	}
}

func TestParseOptions(t *testing.T) {
	m := fourNodes(t)
	offers := [][]topology.ResourceHints{provider(t, "0-1 preferred, 2-3 preferred")}
	for _, c := range []struct {
		options map[string]string
		want    string // the merge, or a part of the error
	}{
		{nil, "0-1 preferred"},
		{map[string]string{"prefer-closest-numa-nodes": "true"}, "2-3 preferred"},
		{map[string]string{"prefer-closest-numa-nodes": "false"}, "0-1 preferred"},
		{map[string]string{"prefer-closest-numa-nodes": "1", "max-allowable-numa-nodes": "12"},
			"2-3 preferred"},
		{map[string]string{"max-allowable-numa-nodes": "8"}, "0-1 preferred"},
		{map[string]string{"prefer-closest-numa-nodes": "yes"}, `"yes" is not true or false`},
		{map[string]string{"closest": "true"}, "use one of prefer-closest-numa-nodes"},
	} {
		options, err := topology.ParseOptions(c.options, m)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: error %v, want %s", c.options, err, c.want)
			}
			continue
		}
		got := options.Merge(topology.Restricted, m.NodeSet(), offers)
		if got.Hint.String() != c.want {
			t.Errorf("%v: got %v, want %s", c.options, got.Hint, c.want)
		}
	}
}
