package topology

import "testing"

// What two devices have in common, the closest counts; it is the same from both sides.
func TestCloseness(t *testing.T) {
	const port = "pci0000:15/0000:15:01.0"
	at := func(address, path string, node NodeID) PCIDevice {
		return PCIDevice{Address: address, Path: path, Node: node}
	}
	gpu := at("0000:1b:00.0", port+"/0000:16:00.0/0000:17:03.0", 0)
	for _, c := range []struct {
		name  string
		other PCIDevice
		want  Closeness
	}{
		{"itself", gpu, SameSwitch},
		{"the NIC beside it", at("0000:18:00.0", port+"/0000:16:00.0/0000:17:00.0", 0), SameSwitch},
		{"a nested switch below", at("0000:1e:00.0",
			port+"/0000:16:00.0/0000:17:04.0/0000:1c:00.0/0000:1d:00.0", 0), SameSwitch},
		{"another card at the root port", at("0000:16:00.1", port, 0), SameRootPort},
		{"another port", at("0000:20:00.0", "pci0000:15/0000:15:02.0", 0), SameRoot},
		{"a device of the root complex", at("0000:15:00.1", "pci0000:15", 0), SameRoot},
		{"another root complex", at("0000:40:00.0", "pci0000:3d/0000:3d:01.0", 0), SameNode},
		{"an unknown path", at("0000:40:00.0", "", 0), SameNode},
		{"another node", at("0000:9a:00.0", "pci0000:97/0000:97:01.0", 1), Apart},
		{"nothing known", at("0000:9a:00.0", "", NoNode), Apart},
		{"nothing at all", PCIDevice{Node: NoNode}, Apart},
	} {
		for _, got := range []Closeness{ClosenessOf(gpu, c.other), ClosenessOf(c.other, gpu)} {
			if got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
	}
	unknown := PCIDevice{Node: NoNode}
	if got := ClosenessOf(unknown, unknown); got != Apart {
		t.Errorf("two unknown devices: %s", got)
	}
}

func TestPCIDevice(t *testing.T) {
	m := pciMachine(t)
	if d, found := m.PCIDevice("0000:1b:00.0"); !found || d.Root() != "pci0000:15" ||
		d.Switch() != "0000:16:00.0" {
		t.Errorf("found %t, root %q, switch %q", found, d.Root(), d.Switch())
	}
	if d, found := m.PCIDevice("0000:40:00.0"); !found || d.Root() != "pci0000:3d" || d.Switch() != "" {
		t.Errorf("found %t, root %q, switch %q", found, d.Root(), d.Switch())
	}
	if _, found := m.PCIDevice("0000:41:00.0"); found {
		t.Error("a device that is not there was found")
	}
	for root, want := range map[string]string{
		"pci0000:15": "0", "pci0000:3d": "1", "pci0000:99": "", "": "",
	} {
		if got := m.NodesOfRoot(root).String(); got != want {
			t.Errorf("root %q is on nodes %q, want %q", root, got, want)
		}
	}
}

func pciMachine(t *testing.T) *Machine {
	t.Helper()
	m, err := NewMachine(Spec{
		Nodes: []Node{{ID: 0}, {ID: 1}}, CPUs: []CPU{{ID: 0}, {ID: 1, Node: 1, Socket: 1, Core: 1}},
		PCI: []PCIDevice{
			{Address: "0000:1b:00.0", Path: "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:03.0"},
			{Address: "0000:40:00.0", Path: "pci0000:3d/0000:3d:01.0", Node: 1},
			{Address: "0000:50:00.0", Path: "pci0000:3d/0000:3d:02.0", Node: NoNode},
			{Address: "0000:60:00.0", Node: 1},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestParsePCIAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0000:3b:00.0": "0000:3b:00.0", "00000000:3B:00.0": "0000:3b:00.0", "3b:00.1": "0000:3b:00.1",
		"10000:00:02.7": "10000:00:02.7", "": "", "0000:3b:00": "", "0000:3b:20.0": "", "0:1:2:3.0": "",
		"0000:3b:00.8": "", "0000:+b:00.0": "", "GPU-1": "", "0000:3b:00.0.0": "",
	} {
		got, ok := ParsePCIAddress(text)
		if got, want := got, want; ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t; want %q", text, got, ok, want)
		}
	}
}

// A path in no form of sysfs is refused, and the error shows one.
func TestBadPath(t *testing.T) {
	for path, valid := range map[string]bool{
		"pci0000:15": true, "pci0000:15/0000:15:01.0/0000:16:00.0": true, "0000:15:01.0": false,
		"pci0000:15/": false, "pci0000:15//0000:15:01.0": false, "pci": false, "pci0000:15/x": false,
		"pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0": true,
	} {
		_, err := NewMachine(Spec{Nodes: []Node{{}}, CPUs: []CPU{{}},
			PCI: []PCIDevice{{Address: "0000:16:00.0", Path: path}}})
		if (err == nil) != valid {
			t.Errorf("path %q: %v", path, err)
		}
	}
}
