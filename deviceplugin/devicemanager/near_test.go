package devicemanager

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// dgx is a machine with plugins for its GPUs, whose ids say nothing, and its NICs, whose ids are PCI
// addresses.
type dgx struct {
	m          *topology.Machine
	gpus, nics Resource
	taken      map[string]sets.Set[string]
}

// newDGX numbers the GPUs in the order of order, an index for each.
func newDGX(t testing.TB, name string, order []int) *dgx {
	t.Helper()
	m := topologytest.Fixture(t, name)
	d := &dgx{m: m, taken: map[string]sets.Set[string]{},
		gpus: Resource{Name: "nvidia.com/gpu", Connected: true, Addresses: map[string]string{}},
		nics: Resource{Name: "rdma/nic", Connected: true}}
	gpus := 0
	for _, pci := range m.PCI() {
		one := &Device{Healthy: true, Nodes: topology.NewNodeSet(pci.Node), ID: pci.Address}
		if pci.Vendor != "0x10de" {
			d.nics.Devices = append(d.nics.Devices, one)
			continue
		}
		one.ID = fmt.Sprintf("GPU-%d", order[gpus])
		d.gpus.Addresses[one.ID] = pci.Address
		d.gpus.Devices = append(d.gpus.Devices, one)
		gpus++
	}
	for _, r := range []Resource{d.gpus, d.nics} {
		slices.SortFunc(r.Devices, func(a, b *Device) int { return CompareIDs(a.ID, b.ID) })
		d.taken[r.Name] = sets.New[string]()
	}
	return d
}

// place is the merged hint for a container: any node.
var anyNode = topology.Hint{Any: true}

// choose chooses for one resource of a container, and takes.
func (d *dgx) choose(t interface{ Fatal(...any) }, r Resource, n int, near Neighbours,
	hint topology.Hint, advice ...string) (ids []string, at []topology.PCIDevice) {
	near.Machine = d.m
	ids, err := Choose(Request{Resource: r, N: n, Taken: d.taken[r.Name], Near: near, Hint: hint,
		Advice: advice})
	if err != nil {
		t.Fatal(err)
	}
	d.taken[r.Name] = d.taken[r.Name].Union(sets.New(ids...))
	return ids, d.places(r, ids)
}

func (d *dgx) places(r Resource, ids []string) (at []topology.PCIDevice) {
	for _, id := range ids {
		pci, _ := r.PCI(d.m, id)
		at = append(at, pci)
	}
	return at
}

// container chooses n GPUs and n NICs, with regard to their places or without. It returns how many
// pairs are under one switch.
func (d *dgx) container(t interface{ Fatal(...any) }, n int, near bool, hint topology.Hint) (pairs int) {
	var soon, has Neighbours
	if near {
		soon = Neighbours{Gets: d.nics.Free(d.m, d.taken[d.nics.Name], hint), Next: n}
	}
	_, gpus := d.choose(t, d.gpus, n, soon, hint)
	if near {
		has = Neighbours{Has: gpus}
	}
	_, nics := d.choose(t, d.nics, n, has, hint)
	return pairsOf(gpus, nics)
}

func pairsOf(gpus, nics []topology.PCIDevice) (pairs int) {
	left := slices.Clone(nics)
	for _, gpu := range gpus {
		for i, nic := range left {
			if topology.ClosenessOf(gpu, nic) == topology.SameSwitch {
				left = slices.Delete(left, i, i+1)
				pairs++
				break
			}
		}
	}
	return pairs
}

// Eight containers with a GPU and a NIC each get eight pairs, each under one switch. By ids and nodes
// alone fewer are.
func TestEightPairsOnADGX(t *testing.T) {
	for name, least := range map[string]int{"dgx-h100": 1, "dgx-a100": 1} {
		order := []int{6, 3, 5, 0, 7, 1, 4, 2}
		with, without := newDGX(t, name, order), newDGX(t, name, order)
		got, kubelet := 0, 0
		for range 8 {
			got += with.container(t, 1, true, anyNode)
			kubelet += without.container(t, 1, false, anyNode)
		}
		if got != 8 || kubelet > 8-least {
			t.Errorf("%s: %d pairs, and %d without regard to places", name, got, kubelet)
		}
	}
}

// A GPU of another container is not beside a NIC that is taken: the pair goes where both are free.
func TestPairWhereBothAreFree(t *testing.T) {
	d := newDGX(t, "dgx-h100", []int{0, 1, 2, 3, 4, 5, 6, 7})
	d.taken[d.nics.Name].Insert("0000:18:00.0", "0000:40:00.0")
	if pairs := d.container(t, 1, true, anyNode); pairs != 1 || !d.taken[d.gpus.Name].Has("GPU-2") {
		t.Errorf("%d pairs with %v", pairs, sets.List(d.taken[d.gpus.Name]))
	}
}

// Several GPUs of a container pair with as many NICs, also if there is a choice of nodes.
func TestSeveralPairs(t *testing.T) {
	for n := 1; n <= 8; n++ {
		d := newDGX(t, "dgx-h100", []int{6, 3, 5, 0, 7, 1, 4, 2})
		if pairs := d.container(t, n, true, anyNode); pairs != n {
			t.Errorf("%d pairs of %d", pairs, n)
		}
	}
}

// The hint comes first: a device under the same switch counts for nothing on a node that is not in it.
func TestNearWithinTheHint(t *testing.T) {
	d := newDGX(t, "dgx-h100", []int{0, 1, 2, 3, 4, 5, 6, 7})
	nic, _ := d.m.PCIDevice("0000:9a:00.0")
	ids, _ := d.choose(t, d.gpus, 1, Neighbours{Has: []topology.PCIDevice{nic}},
		topology.Hint{Nodes: topology.NewNodeSet(0)})
	if ids[0] != "GPU-0" {
		t.Errorf("got %v", ids)
	}
}

// A NIC that the container has by claim brings the GPU under its switch; a second GPU is as close as
// can be.
func TestNearAClaim(t *testing.T) {
	d := newDGX(t, "dgx-a100", []int{0, 1, 2, 3, 4, 5, 6, 7})
	nic, _ := d.m.PCIDevice("0000:ba:00.0")
	ids, at := d.choose(t, d.gpus, 2, Neighbours{Has: []topology.PCIDevice{nic}}, anyNode)
	for _, gpu := range at {
		if topology.ClosenessOf(gpu, nic) != topology.SameSwitch {
			t.Errorf("%v: %s is not under the switch of %s", ids, gpu.Address, nic.Address)
		}
	}
}

// The plugin is asked about devices that are as close, and its advice counts if the devices of it are.
func TestAdviceAmongTheClosest(t *testing.T) {
	d := newDGX(t, "dgx-a100", []int{0, 1, 2, 3, 4, 5, 6, 7})
	d.gpus.Options.Preferred = true
	nic, _ := d.m.PCIDevice("0000:54:00.0")
	near := Neighbours{Machine: d.m, Has: []topology.PCIDevice{nic}}
	ask, wanted := AdviceWanted(Request{Resource: d.gpus, N: 1, Near: near, Hint: anyNode})
	if !wanted || !slices.Equal(ask.Available, []string{"GPU-2", "GPU-3"}) {
		t.Fatalf("asked %t: %v", wanted, ask.Available)
	}
	for advice, want := range map[string]string{"GPU-3": "GPU-3", "GPU-7": "GPU-2"} {
		d.taken[d.gpus.Name] = sets.New[string]()
		if ids, _ := d.choose(t, d.gpus, 1, near, anyNode, advice); ids[0] != want {
			t.Errorf("advice %s: got %v, want %s", advice, ids, want)
		}
	}
	if _, wanted := AdviceWanted(Request{Resource: d.gpus, N: 1, Hint: anyNode, Near: Neighbours{
		Machine: d.m, Has: d.places(d.gpus, []string{"GPU-2"})}, Taken: sets.New("GPU-2")}); wanted {
		t.Error("asked where only one device is as close")
	}
}

// Advice that splits a pair is not followed, also if all of its devices have a neighbour.
func TestAdviceThatSplitsPairs(t *testing.T) {
	d := newDGX(t, "dgx-a100", []int{0, 1, 2, 3, 4, 5, 6, 7})
	a, _ := d.m.PCIDevice("0000:0c:00.0")
	b, _ := d.m.PCIDevice("0000:4b:00.0")
	ids, _ := d.choose(t, d.gpus, 2, Neighbours{Has: []topology.PCIDevice{a, b}}, anyNode,
		"GPU-0", "GPU-1")
	if !slices.Equal(ids, []string{"GPU-0", "GPU-2"}) {
		t.Errorf("got %v", ids)
	}
}

// The choice has as many pairs of each closeness as any choice, by trying all of them.
func TestPairsAreTheMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := []string{"pci0:1/0:1:0.0/0:2:0.0/0:3:0.0", "pci0:1/0:1:0.0/0:2:0.0/0:3:1.0",
			"pci0:1/0:1:0.0", "pci0:1/0:1:1.0", "pci0:4/0:4:0.0/0:5:0.0/0:6:0.0", ""}
		draw := func(what string, n int) (out []topology.PCIDevice) {
			for i := range n {
				out = append(out, topology.PCIDevice{
					Address: fmt.Sprintf("%s%d", what, i),
					Path:    rapid.SampledFrom(paths).Draw(t, what+" path"),
					Node:    topology.NodeID(rapid.IntRange(-1, 1).Draw(t, what+" node")),
				})
				if out[i].Path != "" { // as in a machine: a root is on one node
					out[i].Node = topology.NodeID(out[i].Path[5]-'0') / 4
				}
			}
			return out
		}
		open := draw("open", rapid.IntRange(1, 5).Draw(t, "open"))
		p := pairing{most: rapid.IntRange(1, 4).Draw(t, "most"),
			neighbours: draw("near", rapid.IntRange(1, 4).Draw(t, "near")),
			device:     func(i int) (topology.PCIDevice, bool) { return open[i], true }}
		all := make([]int, len(open))
		for i := range all {
			all[i] = i
		}
		_, got := p.pairs(all, p.most)
		if best := p.tryAll(open, p.neighbours, p.most); got != best {
			t.Errorf("got %v, best %v", got, best)
		}
	})
}

// tryAll returns the best merit of any pairs.
func (p pairing) tryAll(open, near []topology.PCIDevice, most int) (best merit) {
	if most == 0 || len(open) == 0 {
		return best
	}
	best = p.tryAll(open[1:], near, most)
	for i, n := range near {
		c := topology.ClosenessOf(open[0], n)
		if c == topology.Apart {
			continue
		}
		m := p.tryAll(open[1:], slices.Delete(slices.Clone(near), i, i+1), most-1)
		m[int(topology.SameSwitch-c)]++
		if m.compare(best) > 0 {
			best = m
		}
	}
	return best
}
