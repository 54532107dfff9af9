package eni

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// told writes choices as text: id, resource, and the refusal.
func described(choices []Choice) (out []string) {
	for _, c := range choices {
		text := fmt.Sprintf("%s %s", c.Interface.ID, c.Rule.Resource)
		if c.Refusal != "" {
			text += ": " + c.Refusal
		}
		out = append(out, text)
	}
	return out
}

func factsOf(t *testing.T, name string) Facts {
	t.Helper()
	s, sys := open(t, name)
	f, err := Host{kernel: s, mover: s, sysfs: sys}.facts()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestChoose(t *testing.T) {
	f := factsOf(t, "rdma")
	const own = "0000:00:05.0 a: it carries the default route"
	for name, tt := range map[string]struct {
		rule Rule
		want []string
	}{
		"driver of the interface": {Rule{Drivers: []string{"virtio_net"}}, []string{own,
			"0000:00:06.0 a", "0000:40:01.0 a: eth2.100 is on it"}},
		"driver of the function": {Rule{Drivers: []string{"virtio-pci", "igb"}}, []string{own,
			"0000:00:06.0 a", "0000:02:00.0 a: it is part of a bridge or bond",
			"0000:40:01.0 a: eth2.100 is on it"}},
		"vendor": {Rule{Vendors: []string{"15B3"}}, []string{
			"0000:81:00.0 a: it has 2 virtual functions, which would go with it",
			"0000:81:00.1 a", "0000:81:00.2 a"}},
		"vendor and device": {Rule{Vendors: []string{"0x15b3:101e"}},
			[]string{"0000:81:00.1 a", "0000:81:00.2 a"}},
		"MAC address": {Rule{MACs: []string{"B8:CE:F6:00:00:07", "ff:*"}},
			[]string{"0000:81:00.2 a"}},
		"MAC pattern": {Rule{MACs: []string{"02:00:*:03"}}, []string{"0000:00:06.0 a"}},
		"name": {Rule{Names: []string{"eth[1-9]"}}, []string{"0000:00:06.0 a",
			"0000:40:01.0 a: eth2.100 is on it"}},
		"software by name": {Rule{Names: []string{"veth*", "bond0"}},
			[]string{"bond0 a", "veth1234 a"}},
		"subnet": {Rule{Subnets: []string{"10.0.1.0/24", "fd00::/8"}}, []string{"0000:00:06.0 a"}},
		"functions of an interface": {Rule{VirtualOf: []string{"ens8f0"}},
			[]string{"0000:81:00.1 a", "0000:81:00.2 a"}},
		"functions of an address": {Rule{VirtualOf: []string{"0000:81:00.0"}},
			[]string{"0000:81:00.1 a", "0000:81:00.2 a"}},
		"any functions": {Rule{VirtualOf: []string{"*"}},
			[]string{"0000:81:00.1 a", "0000:81:00.2 a"}},
		"RDMA": {Rule{RDMA: true}, []string{
			"0000:81:00.0 a: it has 2 virtual functions, which would go with it",
			"0000:81:00.1 a"}},
		"all of them": {Rule{Drivers: []string{"mlx5_core"}, VirtualOf: []string{"ens8f0"},
			MACs: []string{"b8:*"}, RDMA: true}, []string{"0000:81:00.1 a"}},
		"none": {Rule{Drivers: []string{"ena"}}, nil},
	} {
		tt.rule.Resource = "a"
		got := described(Choose(f, []Rule{tt.rule}, ownOf(f, nil)))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: want (-), got (+)\n%s", name, diff)
		}
	}
}

// The first matching rule counts, and no interface that the node needs is offered.
func TestFirstRule(t *testing.T) {
	f := factsOf(t, "rdma")
	rules := []Rule{{Resource: "rdma", RDMA: true}, {Resource: "rest", MACs: []string{"*"}}}
	got := described(Choose(f, rules, ownOf(f, nil)))
	for _, want := range []string{"0000:81:00.1 rdma", "0000:81:00.2 rest", "0000:00:06.0 rest"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not among %q", want, got)
		}
	}
	if len(got) != len(f.Interfaces) {
		t.Errorf("%d choices of %d interfaces", len(got), len(f.Interfaces))
	}
}

// An interface beneath one with the default route or a node's address is the node's as well.
func TestOwn(t *testing.T) {
	f := factsOf(t, "rdma")
	for name, tt := range map[string]struct {
		routes []int
		ip     string
		want   string
	}{
		"default route": {[]int{2}, "", "0000:00:05.0 carries the default route"},
		"address": {nil, "10.0.1.5",
			"0000:00:06.0 has the node's address 10.0.1.5"},
		"both": {[]int{2}, "10.0.1.5", "0000:00:05.0 carries the default route; " +
			"0000:00:06.0 has the node's address 10.0.1.5"},
		"vlan": {[]int{8}, "", "0000:40:01.0 is beneath eth2.100, which carries the default " +
			"route; eth2.100 carries the default route"},
		"bond": {[]int{9}, "", "0000:02:00.0 is beneath bond0, which carries the default route; " +
			"bond0 carries the default route"},
		"nothing": {nil, "", ""},
	} {
		f.Routes = tt.routes
		var addresses []netip.Addr
		if tt.ip != "" {
			addresses = append(addresses, netip.MustParseAddr(tt.ip))
		}
		own := ownOf(f, addresses)
		var got []string
		for id, why := range own {
			got = append(got, id+" "+why)
		}
		slices.Sort(got)
		if text := strings.Join(got, "; "); text != tt.want {
			t.Errorf("%s: %s, want %s", name, text, tt.want)
		}
		choices := Choose(f, []Rule{{Resource: "a", MACs: []string{"*"}}}, own)
		for _, c := range choices {
			if why := own[c.Interface.ID]; c.Refusal == "" && (why != "" || len(own) == 0) {
				t.Errorf("%s: %s is offered: %s", name, c.Interface.ID, why)
			}
		}
	}
}

// The hardware as read from sysfs.
func TestHardware(t *testing.T) {
	f := factsOf(t, "rdma")
	one := 1
	want := Hardware{PCI: "0000:81:00.1", Root: "pci0000:80", Vendor: "15b3", Device: "101e",
		Drivers: []string{"mlx5_core"}, Node: &one, Speed: 25000, Physical: "0000:81:00.0",
		RDMA: []string{"mlx5_1"}, Nodes: []string{"/dev/infiniband/uverbs1",
			"/dev/infiniband/issm1", "/dev/infiniband/umad1"}}
	byID := map[string]Interface{}
	for _, i := range f.Interfaces {
		byID[i.ID] = i
	}
	if diff := cmp.Diff(want, byID["0000:81:00.1"].Hardware); diff != "" {
		t.Errorf("want (-), got (+)\n%s", diff)
	}
	if h := byID["0000:40:01.0"].Hardware; h.Node != nil || h.Vendor != "1af4" ||
		!slices.Equal(h.Drivers, []string{"virtio_net", "virtio-pci"}) {
		t.Errorf("one without a node: %+v", h)
	}
	if h := byID["veth1234"].Hardware; h.PCI != "" || h.Drivers != nil {
		t.Errorf("software: %+v", h)
	}
}

// RDMA devices made by software on an interface are not part of its hardware: netlink reports them.
func TestRDMAOverInterface(t *testing.T) {
	s, sys := open(t, "rdma")
	put(t, filepath.Join(sys.root, "class/infiniband/rxe0/node_type"), "1: CA")
	put(t, filepath.Join(sys.root, "class/infiniband_verbs/uverbs7/ibdev"), "rxe0")
	s.rdma = map[int][]string{3: {"rxe0"}, 6: {"mlx5_1"}}
	f, err := Host{kernel: s, mover: s, sysfs: sys}.facts()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, c := range Choose(f, []Rule{{Resource: "a.b/rdma", RDMA: true}}, ownOf(f, nil)) {
		if c.Refusal == "" {
			got[c.Interface.Link.State.Name] = append(c.Interface.Hardware.RDMA,
				c.Interface.Hardware.Nodes...)
		}
	}
	want := map[string][]string{
		"eth1": {"rxe0", "/dev/infiniband/uverbs7"},
		"ens8f0v0": {"mlx5_1", "/dev/infiniband/uverbs1", "/dev/infiniband/issm1",
			"/dev/infiniband/umad1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+)\n%s", diff)
	}
}

func TestBadRules(t *testing.T) {
	for want, r := range map[string]Rule{
		`resource "eni": write the name of an extended resource`:      {Resource: "eni"},
		`resource "kubernetes.io/eni": write the name of an extended`: {Resource: "kubernetes.io/eni"},
		"resource a.b/c: its rule selects no interfaces: give":        {Resource: "a.b/c"},
		`resource a.b/c: "eth[" is no pattern: write one such as`: {Resource: "a.b/c",
			Names: []string{"eth["}},
		`resource a.b/c: subnet "10.0.0.1": write one such as 10.0.16.0/20`: {Resource: "a.b/c",
			Subnets: []string{"10.0.0.1"}},
	} {
		if err := r.check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
}
