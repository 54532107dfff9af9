package discover

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/topology"
)

// machineFile is the YAML form of a machine:
//
//	name: two sockets, SMT, one GPU each
//	nodes:
//	- {id: 0, cpus: "0-3,8-11", memory: 64Gi, hugepages: {2Mi: 512}, distances: {0: 10, 1: 21}}
//	- {id: 1, cpus: "4-7,12-15", memory: 64Gi, distances: {0: 21, 1: 10}}
//	sockets: {0: "0-3,8-11", 1: "4-7,12-15"}
//	cores: ["0-7+8-15"]
//	l3: ["0-1,8-9", "2-3,10-11"]
//	offline: "11"
//	isolated: "2-3"
//	pci:
//	- {address: "0000:3b:00.0", path: "pci0000:3a/0000:3a:00.0", class: 0x030200,
//	   vendor: 0x10de, device: 0x2330, node: 0}
//
// Only nodes is required. Defaults:
//
//   - id of a node: its place in the list. distances: 10 to itself, 20 to the others.
//   - sockets: each node is one. If given, every online CPU must be in one.
//   - cores: a CPU in no entry is a core with one thread. An entry "0-3+8-11" lists the first threads
//     and the second threads of four cores; an entry without "+", "0,8", is one core.
//   - l3: online CPUs in no entry share one cache per socket.
//   - offline: none. These CPUs are present but off; those that no node lists are on no node.
//   - isolated: none. These are the CPUs of isolcpus=.
//   - node and path of a PCI device: unknown. The path is the root complex and the bridges above the
//     device, as in sysfs.
type machineFile struct {
	Name    string            `json:"name"`
	Nodes   []nodeFields      `json:"nodes"`
	Sockets map[string]scalar `json:"sockets"`
	Cores   []scalar          `json:"cores"`
	L3      []scalar          `json:"l3"`
	Offline scalar            `json:"offline"`
	// Isolated CPUs are on nodes or offline.
	Isolated scalar      `json:"isolated"`
	PCI      []pciFields `json:"pci"`
}

type nodeFields struct {
	ID        scalar            `json:"id"`
	CPUs      scalar            `json:"cpus"`
	Memory    scalar            `json:"memory"`
	HugePages map[string]scalar `json:"hugepages"`
	Distances map[string]scalar `json:"distances"`
}

type pciFields struct {
	Address scalar `json:"address"`
	Path    scalar `json:"path"`
	Class   scalar `json:"class"`
	Vendor  scalar `json:"vendor"`
	Device  scalar `json:"device"`
	Name    scalar `json:"name"`
	Node    scalar `json:"node"`
}

// scalar is a string or a number as text, so that quotes do not matter in the file, and the code
// that knows a field reports its wrong values.
type scalar string

// UnmarshalJSON takes any value; anything but a string keeps its JSON text.
func (s *scalar) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*s = ""
		return nil
	}
	var text string
	if json.Unmarshal(data, &text) == nil {
		*s = scalar(text)
		return nil
	}
	*s = scalar(data)
	return nil
}

// maxYAML bounds the input of ParseYAML in bytes.
const maxYAML = 8 << 20

// ParseYAML reads a machine in our YAML (see machineFile, or the output of "numalet topology show
// -o yaml"), or the JSON of a topology.Spec. Unknown fields are errors. Errors name the field and
// its form.
func ParseYAML(r io.Reader) (*topology.Machine, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxYAML+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxYAML {
		return nil, fmt.Errorf("the file is larger than %d MiB: not a machine file", maxYAML>>20)
	}
	text, err := strictyaml.ToJSON(data, true)
	if err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, errors.New("not a machine file: it has no fields; " +
			"start from one that \"numalet topology show -o yaml\" prints")
	}
	if _, whole := top["cpus"]; whole {
		var spec topology.Spec
		if err := decodeStrict(text, &spec); err != nil {
			return nil, err
		}
		if err := checkIDs(spec); err != nil {
			return nil, err
		}
		return topology.NewMachine(spec)
	}
	var file machineFile
	if err := decodeStrict(text, &file); err != nil {
		return nil, err
	}
	spec, err := file.spec()
	if err != nil {
		return nil, err
	}
	return topology.NewMachine(spec)
}

func decodeStrict(data []byte, into any) error {
	err := strictyaml.UnmarshalJSON(data, into)
	if err == nil {
		return nil
	}
	const next = "the fields are those that \"numalet topology show -o yaml\" prints"
	// "json: cannot unmarshal object into Go struct field machineFile.nodes of type []T"
	text := strings.TrimPrefix(err.Error(), "json: ")
	value, rest, _ := strings.Cut(strings.TrimPrefix(text, "cannot unmarshal "), " into Go ")
	field, _, ok := strings.Cut(strings.TrimPrefix(rest, "struct field "), " of type ")
	if _, path, below := strings.Cut(field, "."); ok && below {
		return fmt.Errorf("%s: %s does not belong here; %s", path, value, next)
	}
	return fmt.Errorf("%s; %s", text, next)
}

// spec returns the machine that the file describes.
func (f machineFile) spec() (topology.Spec, error) {
	if len(f.Nodes) == 0 {
		return topology.Spec{}, errors.New(
			"nodes: empty; list at least one, like {id: 0, cpus: \"0-3\", memory: 8Gi}")
	}
	spec := topology.Spec{Name: f.Name}
	draft := draft{}
	for i, fields := range f.Nodes {
		node, err := fields.node(i)
		if err != nil {
			return topology.Spec{}, err
		}
		spec.Nodes = append(spec.Nodes, node)
		path := fmt.Sprintf("nodes[%d].cpus", i)
		if err := draft.addNode(node.ID, path, fields.CPUs); err != nil {
			return topology.Spec{}, err
		}
	}
	if err := checkDistances(spec.Nodes); err != nil {
		return topology.Spec{}, err
	}
	if err := cmp.Or(draft.setOffline(f.Offline), draft.setSockets(f.Sockets),
		draft.setCores(f.Cores), draft.setL3(f.L3), draft.setIsolated(f.Isolated)); err != nil {
		return topology.Spec{}, err
	}
	spec.CPUs = draft.finish()
	for i, fields := range f.PCI {
		device, err := fields.device(fmt.Sprintf("pci[%d]", i))
		if err != nil {
			return topology.Spec{}, err
		}
		spec.PCI = append(spec.PCI, device)
	}
	return spec, nil
}

func (f nodeFields) node(index int) (topology.Node, error) {
	path := fmt.Sprintf("nodes[%d]", index)
	id := index
	var err error
	if f.ID != "" {
		if id, err = parseID(string(f.ID)); err != nil {
			return topology.Node{}, fmt.Errorf("%s.id: %w", path, err)
		}
	}
	node := topology.Node{ID: topology.NodeID(id)}
	if f.Memory != "" {
		if node.MemoryBytes, err = parseBytes(string(f.Memory)); err != nil {
			return topology.Node{}, fmt.Errorf("%s.memory: %w", path, err)
		}
	}
	if node.HugePages, err = parseHugePages(path+".hugepages", f.HugePages); err != nil {
		return topology.Node{}, err
	}
	if len(f.Distances) > 0 {
		node.Distances = map[topology.NodeID]int{}
	}
	for _, key := range slices.Sorted(maps.Keys(f.Distances)) {
		to, err := parseID(key)
		if err != nil {
			return topology.Node{}, fmt.Errorf("%s.distances: node %w", path, err)
		}
		distance, err := parseID(string(f.Distances[key]))
		if err != nil {
			return topology.Node{}, fmt.Errorf("%s.distances[%d]: %w", path, to, err)
		}
		node.Distances[topology.NodeID(to)] = distance
	}
	return node, nil
}

// checkIDs bounds the ids of a topology.Spec as parseID bounds those of a machine file.
func checkIDs(spec topology.Spec) error {
	for i, n := range spec.Nodes {
		if n.ID > topology.MaxID {
			return fmt.Errorf("nodes[%d].id: %d is larger than %d, the largest id", i, n.ID, topology.MaxID)
		}
	}
	for i, c := range spec.CPUs {
		if c.ID > topology.MaxID {
			return fmt.Errorf("cpus[%d].id: %d is larger than %d, the largest id", i, c.ID, topology.MaxID)
		}
	}
	return nil
}

func checkDistances(nodes []topology.Node) error {
	known := map[topology.NodeID]bool{}
	for _, n := range nodes {
		known[n.ID] = true
	}
	for i, n := range nodes {
		for to := range n.Distances {
			if !known[to] {
				return fmt.Errorf("nodes[%d].distances: node %d is not in nodes; leave it out or "+
					"add it", i, to)
			}
		}
	}
	return nil
}

func (f pciFields) device(path string) (topology.PCIDevice, error) {
	d := topology.PCIDevice{Address: string(f.Address), Path: string(f.Path), Name: string(f.Name),
		Node: topology.NoNode}
	if d.Address == "" {
		return d, fmt.Errorf("%s.address: empty; write it like \"0000:3b:00.0\"", path)
	}
	for _, id := range []struct {
		name   string
		text   scalar
		digits int
		field  *string
	}{
		{"class", f.Class, 6, &d.Class},
		{"vendor", f.Vendor, 4, &d.Vendor},
		{"device", f.Device, 4, &d.Device},
	} {
		var err error
		if *id.field, err = parseHex(string(id.text), id.digits); err != nil {
			return d, fmt.Errorf("%s.%s: %w", path, id.name, err)
		}
	}
	if node := cmp.Or(string(f.Node), "-1"); node != "-1" {
		id, err := parseID(node)
		if err != nil {
			return d, fmt.Errorf("%s.node: %w", path, err)
		}
		d.Node = topology.NodeID(id)
	}
	return d, nil
}
