package places

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// attributes makes attributes of strings, ints and lists of them.
func attributes(of map[resourcev1.QualifiedName]any) (
	out map[resourcev1.QualifiedName]resourcev1.DeviceAttribute) {
	out = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	for name, value := range of {
		var a resourcev1.DeviceAttribute
		switch v := value.(type) {
		case string:
			a.StringValue = &v
		case int:
			n := int64(v)
			a.IntValue = &n
		case []int64:
			a.IntValues = v
		case []string:
			a.StringValues = v
		case bool:
			a.BoolValue = &v
		}
		out[name] = a
	}
	return out
}

func machine(t *testing.T) *topology.Machine {
	t.Helper()
	return topologytest.Fixture(t, "dgx-h100")
}

// Every way in which drivers say where a device is, and what is made of wrong ones.
func TestFind(t *testing.T) {
	m := machine(t)
	type said = map[resourcev1.QualifiedName]any
	node := topology.NewNodeSet
	for _, c := range []struct {
		name, driver string
		said         said
		want         claim.Place
		wrong        string // in the only complaint
	}{
		{name: "nothing", driver: "x"},
		{name: "the standard node", driver: "x", said: said{"resource.kubernetes.io/numaNode": 1},
			want: claim.Place{Nodes: node(1)}},
		{name: "the node and those as near", driver: "x",
			said: said{"resource.kubernetes.io/numaNode": []int64{1, 0}}, want: claim.Place{Nodes: node(1)}},
		{name: "the address", driver: "x", said: said{"resource.kubernetes.io/pciBusID": "0000:9d:00.0"},
			want: claim.Place{Nodes: node(1), PCI: "0000:9d:00.0", Root: "pci0000:97"}},
		{name: "the root", driver: "x", said: said{"resource.kubernetes.io/pcieRoot": "pci0000:15"},
			want: claim.Place{Nodes: node(0), Root: "pci0000:15"}},
		{name: "roots of a group of CPUs", driver: "dra.cpu",
			said: said{"resource.kubernetes.io/pcieRoot": []string{"pci0000:15", "pci0000:97"}},
			want: claim.Place{Nodes: node(0, 1)}},
		{name: "an address that the machine lacks", driver: "x",
			said: said{"resource.kubernetes.io/pciBusID": "0000:02:00.0"},
			want: claim.Place{PCI: "0000:02:00.0"}},
		{name: "the node of the driver, not that of the address", driver: "x", said: said{
			"resource.kubernetes.io/numaNode": 0, "resource.kubernetes.io/pciBusID": "0000:9d:00.0"},
			want: claim.Place{Nodes: node(0), PCI: "0000:9d:00.0", Root: "pci0000:97"}},
		{name: "NVIDIA's GPU", driver: "gpu.nvidia.com",
			said: said{"uuid": "GPU-1", "pcieBusID": "00000000:1B:00.0", "type": "gpu"},
			want: claim.Place{Nodes: node(0), PCI: "0000:1b:00.0", Root: "pci0000:15", UUID: "GPU-1"}},
		{name: "NVIDIA's partition", driver: "gpu.nvidia.com",
			said: said{"uuid": "MIG-1", "parentUUID": "GPU-1"},
			want: claim.Place{UUID: "MIG-1", Parent: "GPU-1"}},
		{name: "names without a domain are the driver's", driver: "other",
			said: said{"uuid": "GPU-1", "pcieBusID": "0000:1b:00.0"}},
		{name: "names with the driver's domain", driver: "gpu.nvidia.com",
			said: said{"gpu.nvidia.com/numa": 1}, want: claim.Place{Nodes: node(1)}},
		{name: "AMD's GPU", driver: "gpu.amd.com", said: said{"pciAddr": "0000:43:00.0", "numaNode": 0},
			want: claim.Place{Nodes: node(0), PCI: "0000:43:00.0", Root: "pci0000:3d"}},
		{name: "dranet", driver: "dra.net", said: said{"dra.net/numaNode": 1},
			want: claim.Place{Nodes: node(1)}},
		{name: "dranet's name from another driver", driver: "dra.cpu",
			said: said{"dra.net/numaNode": 1, "dra.cpu/numaNodeID": 1}, want: claim.Place{Nodes: node(1)}},
		{name: "SR-IOV", driver: "sriovnetwork.k8snetworkplumbingwg.io",
			said: said{"sriovnetwork.k8snetworkplumbingwg.io/pciAddress": "0000:18:00.0"},
			want: claim.Place{Nodes: node(0), PCI: "0000:18:00.0", Root: "pci0000:15"}},
		{name: "a node that is none", driver: "x", said: said{"resource.kubernetes.io/numaNode": 7},
			wrong: "device x/p/d: its attribute resource.kubernetes.io/numaNode is 7, and the machine " +
				"has the nodes 0-1"},
		{name: "a node that is none beside one that is", driver: "dra.cpu",
			said: said{"resource.kubernetes.io/numaNode": -2, "dra.cpu/numaNodeID": 1},
			want: claim.Place{Nodes: node(1)}, wrong: "is -2"},
		{name: "a node that the firmware does not say", driver: "gpu.nvidia.com", said: said{"numa": -1}},
		{name: "an address that is none", driver: "x",
			said: said{"resource.kubernetes.io/pciBusID": "eth0\nx"}, wrong: `"eth0\nx"`},
		{name: "a root that is none", driver: "x", said: said{"resource.kubernetes.io/pcieRoot": "15"},
			wrong: "no PCIe root"},
		{name: "another type", driver: "x", said: said{"resource.kubernetes.io/numaNode": "1",
			"resource.kubernetes.io/pciBusID": 3, "resource.kubernetes.io/pcieRoot": true}},
	} {
		got, wrong := Default().Find(m, Device{Driver: c.driver, Pool: "p", Name: "d",
			Attributes: attributes(c.said)})
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
		if c.wrong == "" && len(wrong) > 0 || c.wrong != "" && (len(wrong) != 1 ||
			!strings.Contains(wrong[0], c.wrong)) {
			t.Errorf("%s: complaints %q, want one with %q", c.name, wrong, c.wrong)
		}
	}
}

// Devices of CPUs and memory say which and how much they are.
func TestAmounts(t *testing.T) {
	type said = map[resourcev1.QualifiedName]any
	for _, c := range []struct {
		driver   string
		said     said
		capacity map[string]string
		want     claim.Place
		wrong    string
	}{
		{"dra.cpu", said{"cpuID": 1, "resource.kubernetes.io/numaNode": 0}, nil,
			claim.Place{Nodes: topology.NewNodeSet(0), CPUs: "1", Has: claim.Amount{CPUs: 1}}, ""},
		{"dra.cpu", said{"cpuIDs": "0-1"}, map[string]string{"dra.cpu/cpu": "2"},
			claim.Place{Nodes: topology.NewNodeSet(0), CPUs: "0-1", Has: claim.Amount{CPUs: 2}}, ""},
		{"dra.cpu", said{"numaNodeID": 1}, map[string]string{"cpu": "4"},
			claim.Place{Nodes: topology.NewNodeSet(1), Has: claim.Amount{CPUs: 4}}, ""},
		{"dra.cpu", said{"cpuID": 4096}, nil, claim.Place{}, "is 4096, and the machine has the CPUs"},
		{"dra.cpu", said{"cpuIDs": "0-x"}, nil, claim.Place{}, `is "0-x", and the machine has the CPUs`},
		{"dra.memory", said{"numaNode": 1, "pageSize": "2m"}, map[string]string{"pages": "8"},
			claim.Place{Nodes: topology.NewNodeSet(1), Has: claim.Amount{Pages: 8}, PageBytes: 2 << 20}, ""},
		{"dra.memory", said{"numaNode": 0, "pageSize": "4k"}, map[string]string{"memory": "1Gi"},
			claim.Place{Nodes: topology.NewNodeSet(0), Has: claim.Amount{Bytes: 1 << 30},
				PageBytes: 4 << 10}, ""},
		{"dra.memory", said{"pageSize": "big"}, nil, claim.Place{}, "no size of pages"},
	} {
		d := Device{Driver: c.driver, Pool: "p", Name: "d", Attributes: attributes(c.said),
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}}
		for name, value := range c.capacity {
			d.Capacity[resourcev1.QualifiedName(name)] = resourcev1.DeviceCapacity{
				Value: resource.MustParse(value)}
		}
		got, wrong := Default().Find(machine(t), d)
		if got != c.want || (len(wrong) > 0) != (c.wrong != "") ||
			!strings.Contains(strings.Join(wrong, ""), c.wrong) {
			t.Errorf("%v: %+v, want %+v; %q", c.said, got, c.want, wrong)
		}
	}
}

// The configuration adds attributes, and its meaning of a known one counts.
func TestWith(t *testing.T) {
	table := Default().With(Table{"example.com/at": Nodes, "dra.net/numaNode": Address})
	got, wrong := table.Find(machine(t), Device{Driver: "example.com", Pool: "p", Name: "d",
		Attributes: attributes(map[resourcev1.QualifiedName]any{"at": []int64{0, 1}, "dra.net/numaNode": 1})})
	if want := (claim.Place{Nodes: topology.NewNodeSet(0, 1)}); got != want || len(wrong) != 0 {
		t.Errorf("got %+v, want %+v; complaints %q", got, want, wrong)
	}
	if Default()["dra.net/numaNode"] != Node {
		t.Error("With changed the default")
	}
}

// The standard attributes are those that Kubernetes' own module names.
func TestStandardNames(t *testing.T) {
	for name, want := range map[resourcev1.QualifiedName]Meaning{
		deviceattribute.StandardDeviceAttributeNUMANode: Node,
		deviceattribute.StandardDeviceAttributePCIBusID: Address,
		deviceattribute.StandardDeviceAttributePCIeRoot: Root,
	} {
		if got := Default()[name]; got != want {
			t.Errorf("%s means %q, want %q", name, got, want)
		}
	}
}

// Two devices are compared by the machine's PCI devices, or by what the attributes alone say.
func TestPCI(t *testing.T) {
	m := machine(t)
	gpu := PCI(m, claim.Place{PCI: "0000:1b:00.0"})
	for _, c := range []struct {
		at   claim.Place
		want topology.Closeness
	}{
		{claim.Place{PCI: "0000:18:00.0"}, topology.SameSwitch},
		{claim.Place{Root: "pci0000:15"}, topology.SameRoot},
		{claim.Place{Nodes: topology.NewNodeSet(0)}, topology.SameNode},
		{claim.Place{Nodes: topology.NewNodeSet(0, 1)}, topology.Apart},
		{claim.Place{}, topology.Apart},
	} {
		if got := topology.ClosenessOf(gpu, PCI(m, c.at)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.at, got, c.want)
		}
	}
}

// Entries of the configuration: each bad one is named, with what is wrong.
func TestParseTable(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct{ entries, wrong string }{
		{entries: ""},
		{entries: "example.com/numa=node,example.com/bus=pciAddress,x/gone=ignored"},
		{entries: "example.com/numa=node,example.com/numa=node"},
		{"example.com/numa=node,example.com/numa=nodes", `"example.com/numa=nodes": the attribute means node already`},
		{"numa=node", `"numa=node": the name has to be`},
		{"example.com/numa", `"example.com/numa": there are the meanings node nodes pciAddress pcieRoot uuid parentUUID cpu cpus pageSize ignored`},
		{"example.com/numa=numa", "there are the meanings"},
		{"Example.com/numa=node", `"Example.com/numa=node": the domain has to be`},
		{long + "/numa=node", "the domain has to be"},
		{"example.com/" + long + "=node", "the name has to be"},
		{"example.com/a-b=node", "the name has to be"},
	} {
		var entries []string
		if c.entries != "" {
			entries = strings.Split(c.entries, ",")
		}
		table, err := ParseTable(entries)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %s", c.entries, err, c.wrong)
		}
		if c.wrong == "" && len(entries) == 3 && (table["example.com/bus"] != Address || len(table) != 3) {
			t.Errorf("%s: %v", c.entries, table)
		}
	}
	ignored, _ := ParseTable([]string{"resource.kubernetes.io/numaNode=ignored", "x/at=node"})
	got, _ := Default().With(ignored).Find(machine(t), Device{Driver: "x", Pool: "p",
		Name: "d", Attributes: attributes(map[resourcev1.QualifiedName]any{"resource.kubernetes.io/numaNode": 0, "at": 1})})
	if got.Nodes != topology.NewNodeSet(1) {
		t.Errorf("a driver's wrong attribute counts: %v", got)
	}
}
