package discover

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

func TestYAMLRoundTrip(t *testing.T) {
	for _, name := range FixtureNames() {
		t.Run(name, func(t *testing.T) {
			m, err := Fixture(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := diffSpecs(m.Spec(), throughYAML(t, m).Spec()); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnyMachineRoundTripsThroughYAMLAndJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := anyMachine(t)
		if rapid.Bool().Draw(t, "cpu of no node") {
			spec.CPUs = append(spec.CPUs, topology.CPU{
				ID: 900, Node: topology.NoNode, Socket: noSocket, Core: 900, L3: 900, Offline: true,
			})
		}
		m, err := topology.NewMachine(spec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffSpecs(spec, throughYAML(t, m).Spec()); diff != "" {
			t.Errorf("YAML (-want +got):\n%s", diff)
		}
		text, err := json.Marshal(m.Spec())
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseYAML(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffSpecs(spec, back.Spec()); diff != "" {
			t.Errorf("JSON (-want +got):\n%s", diff)
		}
	})
}

func throughYAML(t rapid.TB, m *topology.Machine) *topology.Machine {
	t.Helper()
	var b bytes.Buffer
	if err := WriteYAML(&b, m); err != nil {
		t.Fatal(err)
	}
	back, err := ParseYAML(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return back
}

// Defaults for what a file leaves out.
func TestYAMLDefaults(t *testing.T) {
	const file = `
nodes:
- cpus: "0-3"
  memory: 1024
- {id: 5, cpus: 4, hugepages: {2048Ki: 3}}
- {memory: 1Gi}
cores: ["0+2", "1,3"]
l3: ["0,2"]
offline: 8
isolated: "3,8"
pci:
- {address: 0000:01:00.0, class: 197120, vendor: "0x10DE"}
`
	m, err := ParseYAML(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := topology.Spec{
		Nodes: []topology.Node{
			{ID: 0, MemoryBytes: 1024},
			{ID: 2, MemoryBytes: 1 << 30},
			{ID: 5, HugePages: []topology.HugePages{{PageBytes: 2 << 20, Count: 3}}},
		},
		CPUs: []topology.CPU{
			{ID: 0, Core: 0, L3: 0},
			{ID: 1, Core: 1, L3: 1},
			{ID: 2, Core: 0, L3: 0},
			{ID: 3, Core: 1, L3: 1, Isolated: true},
			{ID: 4, Node: 5, Socket: 5, Core: 4, L3: 4},
			{ID: 8, Node: topology.NoNode, Socket: noSocket, Core: 8, L3: 8, Offline: true,
				Isolated: true},
		},
		PCI: []topology.PCIDevice{
			{Address: "0000:01:00.0", Class: "0x030200", Vendor: "0x10de", Node: topology.NoNode},
		},
	}
	if diff := diffSpecs(want, m.Spec()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestYAMLErrors(t *testing.T) {
	one := "nodes: [{cpus: \"0-3\", memory: 1Gi}]\n"
	tests := []struct {
		name, file, want string
	}{
		{"empty", "", "nodes: empty; list at least one"},
		{"no fields", "hello", "not a machine file: it has no fields"},
		{"no nodes", "name: x", "nodes: empty"},
		{"syntax", "nodes: [", "not YAML: yaml: line 1"},
		{"duplicate field", "name: a\nname: b\n", `"name" already set`},
		{"unknown field", one + "socket: {}", `unknown field "socket"`},
		{"unknown field below", "nodes: [{cpu: 1}]", `unknown field "nodes[0].cpu"`},
		{"nodes is a map", "nodes: {0: 1}", "nodes: object does not belong here"},
		{"node is a string", "nodes: [a]", "nodes: string does not belong here"},
		{"id", "nodes: [{id: x}]", `nodes[0].id: "x" is not a number`},
		{"negative id", "nodes: [{id: -1}]", `nodes[0].id: "-1" is not a number`},
		{"cpus", "nodes: [{cpus: 0-x}]",
			`nodes[0].cpus: list "0-x": "x" is not a number; write it like "0-3,8"`},
		{"cpus are a list", "nodes: [{cpus: [0, 1]}]", `nodes[0].cpus: list "[0,1]"`},
		{"backwards", "nodes: [{cpus: 3-0}]",
			"nodes[0].cpus: list \"3-0\": the range 3-0 runs backwards"},
		{"endless", "nodes: [{cpus: 0-4000000000}]", "4000000000 is larger than 65535"},
		{"same cpu", "nodes: [{cpus: 0-3}, {cpus: 3-4}]", "nodes[1].cpus: cpu 3 is on node 0 too"},
		{"same node", "nodes: [{id: 1, cpus: 0}, {cpus: 1}]", "node 1 is listed twice"},
		{"memory", "nodes: [{memory: 1GB}]",
			`nodes[0].memory: "1GB" is not an amount of memory; write it like 64Gi`},
		{"memory overflows", "nodes: [{memory: 99999999Ti}]", "nodes[0].memory"},
		{"page size", "nodes: [{hugepages: {big: 1}}]", `nodes[0].hugepages: page size "big"`},
		{"page size of 0", "nodes: [{hugepages: {0: 1}}]", `nodes[0].hugepages: a page size of 0`},
		{"page count", "nodes: [{hugepages: {2Mi: -1}}]",
			`nodes[0].hugepages[2Mi]: "-1" is not a number of pages`},
		{"pages twice", "nodes: [{hugepages: {2Mi: 1, 2048Ki: 1}}]",
			"the page size 2Mi is listed twice"},
		{"distance", "nodes: [{distances: {0: near}}]",
			`nodes[0].distances[0]: "near" is not a number`},
		{"distance to nowhere", "nodes: [{distances: {7: 10}}]",
			"nodes[0].distances: node 7 is not in nodes"},
		{"no cpu", "nodes: [{memory: 1Gi}]", "no online cpu"},
		{"socket", one + "sockets: {a: 0-3}", `sockets: "a" is not a number`},
		{"cpu on no socket", one + "sockets: {0: 0-2}", "sockets: cpu 3 is in none"},
		{"cpu on two sockets", one + "sockets: {0: 0-3, 1: 3}",
			"sockets[1]: cpu 3 is listed twice"},
		{"core", one + "cores: [0-1+2]",
			`cores[0]: "0-1+2" has lists of 2 and 1 threads; write it like`},
		{"empty core", one + "cores: [\"\"]", `cores[0]: "" has an empty list`},
		{"core on two sockets", one + "sockets: {0: 0-1, 1: 2-3}\ncores: [\"1,2\"]",
			"core 1 is on sockets 0 and 1"},
		{"core of others", one + "cores: [7]", "cores[0]: cpu 7 is in no node"},
		{"cpu in two caches", one + "l3: [0-1, 1-2]", "l3[1]: cpu 1 is listed twice"},
		{"offline", one + "offline: all", `offline: list "all"`},
		{"all offline", one + "offline: 0-3", "no online cpu"},
		{"address", one + "pci: [{class: 0x030200}]", `pci[0].address: empty`},
		{"class", one + "pci: [{address: a, class: gpu}]",
			`pci[0].class: "gpu" is not an id of 6 hex digits`},
		{"vendor", one + "pci: [{address: a, vendor: 0x12345}]", `pci[0].vendor: "74565"`},
		{"device on node", one + "pci: [{address: a, node: 4}]",
			"PCI device a is on node 4, which does not exist"},
		{"spec with unknown field", `{"nodes":[{"id":0}],"cpus":[{"id":0,"cor":1}]}`,
			`unknown field "cpus[0].cor"`},
		{"spec with endless node", `{"nodes":[{"id":1000000000}],"cpus":[{"id":0}]}`,
			"nodes[0].id: 1000000000 is larger"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseYAML(strings.NewReader(tt.file))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant  %s", err, tt.want)
			}
		})
	}
}

func TestYAMLIsBounded(t *testing.T) {
	huge := strings.NewReader("name: " + strings.Repeat("x", maxYAML))
	if _, err := ParseYAML(huge); err == nil ||
		!strings.Contains(err.Error(), "larger than 8 MiB") {
		t.Errorf("error %v", err)
	}
}

// An accepted file has the same meaning after it is written and read again.
func FuzzParseYAML(f *testing.F) {
	for _, name := range FixtureNames() {
		data, err := machines.ReadFile("machines/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("nodes: [{cpus: 0-1}]\nsockets: {3: 0-1}\ncores: [0+1]\nl3: [0]\noffline: 1,9"))
	f.Add([]byte(`{"nodes":[{"id":0}],"cpus":[{"id":0,"socket":0}]}`))
	f.Add([]byte("a: &a [b]\nc: [*a, *a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseYAML(bytes.NewReader(data))
		if err != nil || bytes.Contains(data, []byte("cpus\"")) {
			return // JSON may number cores freely; it does not round-trip
		}
		if diff := diffSpecs(m.Spec(), throughYAML(t, m).Spec()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
