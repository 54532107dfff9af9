package devicemanager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// hintsOf returns the hints for a request; nil: no preference.
func hintsOf(nodes topology.NodeSet, req Request) []topology.Hint {
	if supply, ok := Supply(nodes, req); ok {
		return supply.Hints()
	}
	return nil
}

func format(hints []topology.Hint) string {
	if hints == nil {
		return "no preference"
	}
	var out []string
	for _, h := range hints {
		text := h.Nodes.String()
		if h.Preferred {
			text += "*"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestHints(t *testing.T) {
	for name, tc := range map[string]struct {
		devices               string
		n                     int
		taken, reusable, must string
		want                  string
	}{
		"one of two nodes":           {devices: "a@0 b@1", n: 1, want: "0* 1* 0-1"},
		"both nodes":                 {devices: "a@0 b@1", n: 2, want: "0-1*"},
		"a node taken":               {devices: "a@0 b@1", n: 1, taken: "a", want: "1* 0-1"},
		"narrower, were it empty":    {devices: "a@0 b@0 c@1", n: 2, taken: "a", want: "0-1"},
		"too many":                   {devices: "a@0 b@1", n: 3, want: ""},
		"all taken":                  {devices: "a@0 b@1", n: 1, taken: "a b", want: ""},
		"unhealthy":                  {devices: "a@0! b@1", n: 1, want: "1* 0-1"},
		"unhealthy ones count empty": {devices: "a@0! b@0 c@1", n: 2, want: "0-1"},
		"no device has a node":       {devices: "a b", n: 1, want: "no preference"},
		"no device":                  {n: 1, want: "no preference"},
		"only some have a node":      {devices: "a@0 b", n: 1, want: "0* 0-1"},
		"not enough have a node":     {devices: "a@0 b", n: 2, want: ""},
		"a device of two nodes":      {devices: "a@0,1", n: 1, want: "0* 1* 0-1"},
		"reusable must be in the set": {
			devices: "a@0 b@1 c@1", n: 2, taken: "a", reusable: "a", want: "0-1",
		},
		"reusable and free": {
			devices: "a@0 b@0 c@1", n: 2, taken: "a", reusable: "a", want: "0* 0-1",
		},
		"reusable without a node": {
			devices: "a b@1", n: 1, taken: "a", reusable: "a", want: "1* 0-1",
		},
		"held already": {
			devices: "a@0 b@1 c@1", n: 1, taken: "b", must: "b", want: "1* 0-1",
		},
		"held, another amount": {devices: "a@0 b@1 c@1", n: 2, taken: "b", must: "b", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := hintsOf(topology.NewNodeSet(0, 1), Request{
				Resource: Resource{Name: gpu, Devices: parseDevices(t, tc.devices)}, N: tc.n,
				Taken: sets.New(strings.Fields(tc.taken)...), Reusable: strings.Fields(tc.reusable),
				MustInclude: strings.Fields(tc.must),
			})
			if format(got) != tc.want {
				t.Errorf("hints %q, want %q", format(got), tc.want)
			}
		})
	}
}

// naiveHints tries every set of nodes and counts devices one by one.
func naiveHints(nodes []topology.NodeID, req Request) []topology.Hint {
	in := func(d *Device, mask topology.NodeSet) bool { return !d.Nodes.Intersect(mask).IsEmpty() }
	least := len(nodes)
	hints := []topology.Hint{}
	usable := 0
	for _, d := range req.Resource.Devices {
		if slices.Contains(req.Reusable, d.ID) || d.Healthy && !req.Taken.Has(d.ID) {
			usable++
		}
	}
masks:
	for bits := 1; bits < 1<<len(nodes); bits++ {
		var mask topology.NodeSet
		for i, n := range nodes {
			if bits&(1<<i) != 0 {
				mask = mask.Union(topology.NewNodeSet(n))
			}
		}
		all, free := 0, 0
		for _, d := range req.Resource.Devices {
			if in(d, mask) {
				all++
			}
		}
		if all >= req.N {
			least = min(least, mask.Len())
		}
		for _, d := range req.Resource.Devices {
			reusable := slices.Contains(req.Reusable, d.ID)
			switch {
			case reusable && !d.Nodes.IsEmpty() && !in(d, mask):
				continue masks
			case in(d, mask) && (reusable || d.Healthy && !req.Taken.Has(d.ID)):
				free++
			}
		}
		if free >= req.N && usable >= req.N {
			hints = append(hints, topology.Hint{Nodes: mask})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Len() == least
	}
	return hints
}

func TestHintsAgainstNaive(t *testing.T) {
	nodes := topology.NewNodeSet(0, 1, 2, 3)
	rapid.Check(t, func(t *rapid.T) {
		req := requests(t)
		req.MustInclude = nil
		got := hintsOf(nodes, req)
		if !slices.ContainsFunc(req.Resource.Devices,
			func(d *Device) bool { return !d.Nodes.IsEmpty() }) {
			if got != nil {
				t.Errorf("hints %s of devices without nodes", format(got))
			}
			return
		}
		want := naiveHints(nodes.IDs(), req)
		slices.SortFunc(want, func(a, b topology.Hint) int {
			if a.Nodes.Len() != b.Nodes.Len() {
				return a.Nodes.Len() - b.Nodes.Len()
			}
			return a.Nodes.Compare(b.Nodes)
		})
		if got == nil || format(got) != format(want) {
			t.Errorf("hints %q, want %q", format(got), format(want))
		}
	})
}

// On wide machines all narrow sets are offered, and only those, each judged as by the exhaustive
// search.
func TestHintsOfWideMachines(t *testing.T) {
	var ids []topology.NodeID
	for id := range topology.NodeID(10) {
		ids = append(ids, id)
	}
	nodes := topology.NewNodeSet(ids...)
	rapid.Check(t, func(t *rapid.T) {
		req := requests(t)
		req.MustInclude = nil
		req.N = max(1, req.N)
		want := naiveHints(ids, req)
		got := hintsOf(nodes, req)
		if got == nil {
			return
		}
		if (len(got) == 0) != (len(want) == 0) {
			t.Fatalf("hints %q, exhaustively %q", format(got), format(want))
		}
		for _, h := range got {
			if !slices.Contains(want, h) {
				t.Errorf("hint %q is not among %q", format([]topology.Hint{h}), format(want))
			}
		}
		narrowest := nodes.Len()
		for _, h := range want {
			narrowest = min(narrowest, h.Nodes.Len())
		}
		withDevices := topology.NodeSet{}
		for _, d := range req.Resource.Devices {
			withDevices = withDevices.Union(d.Nodes)
		}
		for _, h := range want {
			if h.Nodes.Len() == narrowest && h.Nodes.SubsetOf(withDevices) &&
				!slices.Contains(got, h) {
				t.Errorf("hint %q is missing in %q", format([]topology.Hint{h}), format(got))
			}
		}
	})
}

func TestHintsOf64NodesEnd(t *testing.T) {
	req := Request{Resource: Resource{Name: gpu}, N: 32}
	var ids []topology.NodeID
	for i := range 64 {
		ids = append(ids, topology.NodeID(i))
		req.Resource.Devices = append(req.Resource.Devices, &Device{
			ID: fmt.Sprintf("d-%d", i), Healthy: true,
			Nodes: topology.NewNodeSet(topology.NodeID(i)),
		})
	}
	hints := hintsOf(topology.NewNodeSet(ids...), req)
	if len(hints) == 0 || hints[len(hints)-1].Nodes.Len() != 64 {
		t.Errorf("%d hints", len(hints))
	}
	for _, h := range hints[:len(hints)-1] {
		if h.Nodes.Len() != 32 || !h.Preferred {
			t.Errorf("hint %v, want 32 nodes, preferred", h)
		}
	}
	around := topology.NodeSet{}
	for _, h := range hints[:len(hints)-1] {
		around = around.Union(h.Nodes)
	}
	if around.Len() != 64 || hints[len(hints)-1].Preferred {
		t.Errorf("hints around %s, and %v", around, hints[len(hints)-1])
	}
	req.N = 1
	hints = hintsOf(topology.NewNodeSet(ids...), req)
	if len(hints) != 65 || !hints[63].Preferred || hints[64].Preferred {
		t.Errorf("for one device: %s", format(hints))
	}
}
