package memory_test

import (
	"errors"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

var anywhere = topology.Hint{Any: true}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		name     string
		reserved memory.Amounts
		err      string
	}{
		{"nothing", nil, "[memorymanager] you should specify the system reserved memory"},
		{"huge pages only", memory.Amounts{0: {pages: gib}},
			"[memorymanager] you should specify the system reserved memory"},
		{"unknown node", memory.Amounts{0: want(1), 7: want(1)},
			"the reserved memory configuration references a NUMA node 7 that does not exist on " +
				"this machine"},
		{"too much", memory.Amounts{0: want(10)}, "reserve 10737418240 bytes of memory on NUMA " +
			"node 0: it has 9663676416; lower reservedMemory of this node"},
		{"pages that are not there", memory.Amounts{0: {v1.ResourceMemory: gib, huge: gib}},
			"reserve 1073741824 bytes of hugepages-1Gi on NUMA node 0: it has 0; " +
				"lower reservedMemory of this node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := memory.New(shape{{9, 2}, {9, 0}}.machine(t), test.reserved)
			if err == nil || err.Error() != test.err {
				t.Errorf("error %v\n want %s", err, test.err)
			}
		})
	}
}

func TestAllocatable(t *testing.T) {
	p, err := memory.New(shape{{9, 2}, {0, 0}, {4, 4}}.machine(t), memory.Amounts{
		0: {v1.ResourceMemory: 2 * gib, pages: gib}, 2: want(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	expected := memory.Amounts{0: {v1.ResourceMemory: 5 * gib, pages: gib}, 2: {pages: 4 * gib}}
	if diff := gocmp.Diff(expected, p.Allocatable()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHints(t *testing.T) {
	two := shape{{5, 0}, {5, 0}} // 4 GiB each for pods
	for _, test := range []struct {
		name           string
		shape          shape
		held, reusable []memory.Block
		want           wants
		hints          []topology.Hint
	}{
		{"nothing wanted", two, nil, nil, nil, nil},
		{"one node is enough", two, nil, nil, want(4),
			[]topology.Hint{preferred(0), preferred(1), only(0, 1)}},
		{"two are needed", two, nil, nil, want(5), []topology.Hint{preferred(0, 1)}},
		{"too much", two, nil, nil, want(9), nil},
		{"a node used alone joins no group", two, []memory.Block{block(1, 0)}, nil, want(3),
			[]topology.Hint{preferred(0), preferred(1)}},
		{"so nothing has room, though it is free", two, []memory.Block{block(1, 0)}, nil, want(5),
			nil},
		{"a node in a group is not used alone", two, []memory.Block{block(5, 0, 1)}, nil, want(1),
			[]topology.Hint{only(0, 1)}},
		{"a group is used by several", two, []memory.Block{block(5, 0, 1)}, nil, want(3),
			[]topology.Hint{only(0, 1)}},
		{"groups do not overlap", shape{{5, 0}, {5, 0}, {5, 0}}, []memory.Block{block(5, 0, 1)},
			nil, want(5), nil},
		{"a block of size 0 keeps its group", two, []memory.Block{block(0, 0, 1)}, nil, want(1),
			[]topology.Hint{only(0, 1)}},
		{"init containers' memory is free on their nodes", two, nil, []memory.Block{block(4, 0)},
			want(4), []topology.Hint{preferred(0), preferred(1)}},
		{"pages and memory on different nodes", shape{{9, 8}, {9, 0}}, nil, nil,
			wants{v1.ResourceMemory: 8 * gib, pages: 8 * gib}, []topology.Hint{preferred(0, 1)}},
		{"a node without memory", shape{{5, 0}, {0, 0}}, nil, nil, want(1),
			[]topology.Hint{preferred(0)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []topology.Hint
			for _, offer := range hintsOf(test.shape.static(t), test.held, test.reusable, test.want) {
				got = offer.Hints
			}
			if diff := gocmp.Diff(test.hints, got, gocmp.Comparer(equal)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// hintsOf lists the hints for all requests, by resource; nil if there are none.
func hintsOf(p *memory.Static, held, reusable []memory.Block, w wants) (out []topology.ResourceHints) {
	hints := p.Supply(held, reusable, w).Hints()
	for name := range w {
		if len(hints) > 0 {
			out = append(out, topology.ResourceHints{Resource: string(name), Hints: slices.Clone(hints)})
		}
	}
	return out
}

func TestChoose(t *testing.T) {
	two, four := shape{{5, 0}, {5, 0}}, shape{{5, 0}, {5, 0}, {5, 0}, {5, 0}}
	for _, test := range []struct {
		name  string
		shape shape
		held  []memory.Block
		want  uint64
		hint  topology.Hint
		nodes topology.NodeSet
		err   string
	}{
		{"the hint", two, nil, 4, preferred(1), nodes(1), ""},
		{"a wide hint is followed", two, nil, 1, only(0, 1), nodes(0, 1), ""},
		{"any: the lowest", two, nil, 4, anywhere, nodes(0), ""},
		{"any: a group there is", two, []memory.Block{block(5, 0, 1)}, 1, anywhere, nodes(0, 1),
			""},
		{"the zero hint is any", two, nil, 4, topology.Hint{}, nodes(0), ""},
		{"any, no room", two, nil, 9, anywhere, nodes(),
			"[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough " +
				"memory is available"},
		{"any and preferred, but only wide places", two, []memory.Block{block(5, 0, 1)}, 1,
			topology.Hint{Any: true, Preferred: true}, nodes(),
			"[memorymanager] failed to find the default preferred hint"},
		{"extended", four, nil, 6, only(2), nodes(0, 2), ""},
		{"extended to a preferred one", four, nil, 6, preferred(3), nodes(0, 3), ""},
		{"extended past a node in use", four, []memory.Block{block(1, 0)}, 6, only(2), nodes(1, 2),
			""},
		{"extended, not preferred", four, []memory.Block{block(6, 0, 1)}, 1, preferred(0), nodes(),
			"[memorymanager] failed to find the extended preferred hint"},
		{"one node of a group", four, []memory.Block{block(6, 0, 1)}, 1, only(0), nodes(0, 1), ""},
		{"no extension", two, []memory.Block{block(1, 1)}, 5, only(0), nodes(),
			"[memorymanager] failed to find NUMA nodes to extend the current topology hint"},
		{"the hint joins a node used alone", two, []memory.Block{block(1, 1)}, 3, only(0, 1),
			nodes(), "[memorymanager] preferred hint violates NUMA node allocation"},
		{"the hint overlaps a group", four, []memory.Block{block(5, 0, 1)}, 3, only(1, 2), nodes(),
			"[memorymanager] preferred hint violates NUMA node allocation"},
		{"a node without memory in the hint", shape{{5, 0}, {0, 0}}, nil, 4, only(0, 1), nodes(0),
			""},
		{"the hint has no memory at all", shape{{5, 0}, {0, 0}}, nil, 4, only(1), nodes(0), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.shape.static(t).Choose(test.held, nil, want(test.want), test.hint)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("got %+v, error %v\nwant %s", got, err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			expected := []memory.Block{block(test.want, test.nodes.IDs()...)}
			if diff := gocmp.Diff(expected, got, gocmp.Comparer(equal)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestErrorsCanBeTold(t *testing.T) {
	_, err := shape{{5, 0}}.static(t).Choose(nil, nil, want(9), anywhere)
	if !errors.Is(err, memory.ErrNoRoom) {
		t.Errorf("%v", err)
	}
}

// A pod on two nodes ends after a second one joined its group; then another pod comes. After this
// order a kubelet did not start (kubernetes/kubernetes#113130).
func TestOrderDoesNotMatter(t *testing.T) {
	p := shape{{5, 0}, {5, 0}}.static(t)
	held := []memory.Block{block(5, 0, 1), block(2, 0, 1)}
	got, err := p.Choose(held[1:], nil, want(6), only(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	one := p.Usage(append(held[1:], got...))
	other := p.Usage(append(got, held[1:]...))
	if diff := gocmp.Diff(one, other, gocmp.Comparer(equal)); diff != "" {
		t.Errorf("usage depends on the order:\n%s", diff)
	}
}

// Overlapping blocks come from elsewhere. They are counted, and nothing is placed beside them.
func TestForeignBlocks(t *testing.T) {
	p := shape{{9, 0}, {9, 0}, {9, 0}}.static(t)
	wide, narrow := block(9, 0, 1), block(5, 0)
	for name, held := range map[string][]memory.Block{
		"wide first": {wide, narrow}, "narrow first": {narrow, wide},
	} {
		t.Run(name, func(t *testing.T) {
			usage := p.Usage(held)
			free := usage[0].Free[v1.ResourceMemory] + usage[1].Free[v1.ResourceMemory]
			if free != 2*gib {
				t.Errorf("%d bytes are free", free)
			}
			offers := hintsOf(p, held, nil, want(1))
			expected := []topology.Hint{preferred(2)}
			if diff := gocmp.Diff(expected, offers[0].Hints, gocmp.Comparer(equal)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// With too many sets to try, those with the most free memory are still found.
func TestWideMachineWithFewLargeNodes(t *testing.T) {
	s := make(shape, 64)
	for i := range s {
		s[i][0] = 3
	}
	for _, large := range []int{7, 19, 33, 40, 63} {
		s[large][0] = 9
	}
	expected := preferred(7, 19, 33, 40, 63)
	got := hintsOf(s.static(t), nil, nil, want(40))[0].Hints[0]
	if diff := gocmp.Diff(expected, got, gocmp.Comparer(equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWideHintIsExtended(t *testing.T) {
	s := make(shape, 24)
	for i := range s {
		s[i][0] = 3
	}
	got, err := s.static(t).Choose(nil, nil, want(30), only(22, 23))
	if err != nil {
		t.Fatal(err)
	}
	if !nodes(22, 23).SubsetOf(got[0].Nodes) || got[0].Nodes.Len() != 15 {
		t.Errorf("on %q", got[0].Nodes)
	}
}

func TestMisfitsAfterTotalsChanged(t *testing.T) {
	held := []memory.Block{block(4, 0), block(3, 1), block(1, 1), block(1, 2)}
	p := shape{{5, 0}, {4, 0}}.static(t) // before, node 1 had 5 GiB and there was a node 2
	expected := []memory.Block{block(3, 1), block(1, 2)}
	if diff := gocmp.Diff(expected, p.Misfits(held), gocmp.Comparer(equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := (shape{{6, 0}, {6, 0}, {5, 0}}).static(t).Misfits(held); got != nil {
		t.Errorf("with more memory, no room for %+v", got)
	}
}

func TestUsage(t *testing.T) {
	p := shape{{9, 2}, {5, 0}, {0, 0}}.static(t)
	got := p.Usage([]memory.Block{block(8, 0, 1), pageBlock(1, 0, 1)})
	none := wants{v1.ResourceMemory: 0}
	expected := []memory.Usage{
		{
			Node: 0, Group: nodes(0, 1), Blocks: 2, Reserved: want(1),
			Total:       wants{v1.ResourceMemory: 9 * gib, pages: 2 * gib},
			Allocatable: wants{v1.ResourceMemory: 6 * gib, pages: 2 * gib},
			Free:        wants{v1.ResourceMemory: 0, pages: gib},
		},
		{
			Node: 1, Group: nodes(0, 1), Blocks: 2, Reserved: want(1),
			Total:       wants{v1.ResourceMemory: 5 * gib, pages: 0},
			Allocatable: wants{v1.ResourceMemory: 4 * gib, pages: 0},
			Free:        wants{v1.ResourceMemory: 2 * gib, pages: 0},
		},
		{Node: 2, Group: nodes(2), Reserved: wants{}, Total: none, Allocatable: none, Free: none},
	}
	if diff := gocmp.Diff(expected, got, gocmp.Comparer(equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReuse(t *testing.T) {
	inits := []memory.Block{block(3, 0), block(2, 1), pageBlock(2, 0), block(2, 0)}
	left := memory.Reuse(inits, []memory.Block{block(4, 0), pageBlock(1, 0)})
	expected := []memory.Block{block(0, 0), block(2, 1), pageBlock(1, 0), block(1, 0)}
	if diff := gocmp.Diff(expected, left, gocmp.Comparer(equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMems(t *testing.T) {
	p := shape{{5, 0}, {0, 0}, {5, 0}}.static(t)
	for _, test := range []struct {
		blocks []memory.Block
		mems   string
	}{
		{nil, ""}, {[]memory.Block{block(1, 2)}, "2"},
		{[]memory.Block{block(1, 0, 1), pageBlock(1, 2)}, "0,2"},
		{[]memory.Block{block(1, 1, 9)}, ""},
	} {
		if got := p.Mems(test.blocks).String(); got != test.mems {
			t.Errorf("%+v: %q, want %q", test.blocks, got, test.mems)
		}
	}
}

func TestAgain(t *testing.T) {
	blocks := []memory.Block{block(1, 0, 1), pageBlock(1, 0, 1)}
	same := []topology.Hint{preferred(0, 1)}
	expected := []topology.ResourceHints{
		{Resource: "hugepages-2Mi", Hints: same}, {Resource: "memory", Hints: same},
	}
	got := memory.Again(blocks, wants{v1.ResourceMemory: gib, pages: gib})
	if diff := gocmp.Diff(expected, got, gocmp.Comparer(equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, other := range []wants{
		nil, want(1), {v1.ResourceMemory: 2 * gib, pages: gib}, {v1.ResourceMemory: gib, huge: gib},
	} {
		if got := memory.Again(blocks, other); got != nil {
			t.Errorf("%v: %v", other, got)
		}
	}
}

func reservation(node int32, limits string) kubeletconfig.MemoryReservation {
	return kubeletconfig.MemoryReservation{NumaNode: node, Limits: podtest.Amounts(limits)}
}

func TestCheckReserved(t *testing.T) {
	for _, test := range []struct {
		name string
		list []kubeletconfig.MemoryReservation
		kept v1.ResourceList
		err  string
	}{
		{"nothing", nil, podtest.Amounts("cpu=1"), ""},
		{"less by as much as it may",
			[]kubeletconfig.MemoryReservation{reservation(0, "memory=1020Mi")},
			podtest.Amounts("memory=1Gi"), ""},
		{"more by as much as it may",
			[]kubeletconfig.MemoryReservation{reservation(0, "memory=1028Mi")},
			podtest.Amounts("memory=1Gi"), ""},
		{"one byte more", []kubeletconfig.MemoryReservation{reservation(0, "memory=1077936129")},
			podtest.Amounts("memory=1Gi"),
			`the total amount "1077936129" of type "memory" is not equal to the value ` +
				`"1Gi" determined by Node Allocatable feature`},
		{"pages are counted", []kubeletconfig.MemoryReservation{
			reservation(0, "memory=1Gi hugepages-2Mi=2Mi"),
		}, podtest.Amounts("memory=1Gi"),
			`the total amount "2Mi" of type "hugepages-2Mi" is not equal to the ` +
				`value "0" determined by Node Allocatable feature`},
		{"adds up", []kubeletconfig.MemoryReservation{
			reservation(0, "memory=1Gi hugepages-2Mi=4Mi"), reservation(1, "memory=100Mi"),
		}, podtest.Amounts("memory=1124Mi cpu=1 hugepages-2Mi=4Mi"), ""},
		{"none reserved", nil, podtest.Amounts("memory=16484Mi"),
			`the total amount "0" of type "memory" is not ` +
				`equal to the value "16484Mi" determined by Node Allocatable feature`},
		{"eviction threshold forgotten", []kubeletconfig.MemoryReservation{
			reservation(0, "memory=512Mi"), reservation(1, "memory=512Mi"),
		}, podtest.Amounts("memory=1124Mi"),
			`the total amount "1Gi" of type "memory" is not equal to the value ` +
				`"1124Mi" determined by Node Allocatable feature`},
		{"pages of which none are kept", []kubeletconfig.MemoryReservation{
			reservation(0, "memory=1Gi hugepages-1Gi=1Gi"),
		}, podtest.Amounts("memory=1Gi"),
			`the total amount "1Gi" of type "hugepages-1Gi" is not equal to the ` +
				`value "0" determined by Node Allocatable feature`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := memory.CheckReserved(test.list, test.kept, 4<<20)
			if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("error %v\n want %s", err, test.err)
			}
		})
	}
}

func TestReserved(t *testing.T) {
	got := memory.Reserved([]kubeletconfig.MemoryReservation{
		reservation(0, "memory=1Gi"), reservation(1, "memory=2Gi hugepages-2Mi=1Gi"),
	})
	expected := memory.Amounts{0: want(1), 1: {v1.ResourceMemory: 2 * gib, pages: gib}}
	if diff := gocmp.Diff(expected, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
