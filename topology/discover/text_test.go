package discover

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/numalet/numalet/internal/goldentest"
	"github.com/numalet/numalet/topology"
)

func TestTextGolden(t *testing.T) {
	for _, name := range []string{
		"playground", "laptop", "cpuless-memory", "sparse-offline", "dgx-h100", "dgx-a100",
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Fixture(name)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := WriteText(&b, m, false); err != nil {
				t.Fatal(err)
			}
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), b.String())
		})
	}
}

// The picture shows every online CPU, every node and, if requested, every device, and is not wide.
func TestTextIsWholeAndNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := anyMachine(t)
		m, err := topology.NewMachine(spec)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := WriteText(&b, m, true); err != nil {
			t.Fatal(err)
		}
		var cpus []int
		nodes, devices, inL3 := 0, 0, false
		for line := range strings.Lines(b.String()) {
			if utf8.RuneCountInString(line) > 101 {
				t.Errorf("too wide: %s", line)
			}
			_, rest, branch := strings.Cut(line, "─ ")
			if more := strings.Trim(line, "│ \n"); !branch && inL3 && more != "" {
				branch, rest = true, "L3 0 "+more // the list continues
			}
			inL3 = branch && strings.HasPrefix(rest, "L3 ")
			switch {
			case branch && strings.HasPrefix(rest, "L3 "):
				for _, group := range strings.Fields(rest)[2:] {
					for part := range strings.SplitSeq(group, "+") {
						ids, err := parseList(part)
						if err != nil {
							t.Fatal(err)
						}
						cpus = append(cpus, ids...)
					}
				}
			case branch && strings.HasPrefix(rest, "node "):
				nodes++
			case branch && strings.HasPrefix(rest, "PCIe switch "):
			case branch:
				devices++
			}
		}
		if formatList(cpus) != m.Online().String() || len(cpus) != m.Online().Size() {
			t.Errorf("CPUs %v of %s in\n%s", cpus, m.Online(), b.String())
		}
		if nodes != len(spec.Nodes) || devices != len(spec.PCI) {
			t.Errorf("%d nodes and %d devices in\n%s", nodes, devices, b.String())
		}
	})
}

// A node on two sockets is drawn once whole and once with its other CPUs.
func TestTextNodeOnTwoSockets(t *testing.T) {
	m, err := ParseYAML(strings.NewReader("nodes: [{cpus: 0-3, memory: 1536Mi}]\nsockets: {0: " +
		"0-1, 1: 2-3}\npci: [{address: a, class: 0x060000, node: 0}]"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WriteText(&b, m, false); err != nil {
		t.Fatal(err)
	}
	const want = `2 sockets, 1 node, 4 cores, 4 CPUs, 1.5 GiB memory, 1 PCI device

socket 0
└─ node 0  1.5 GiB memory
   └─ L3 0    0-1

socket 1
└─ node 0  (see above)
   └─ L3 2    2-3

1 other PCI device not shown (--all-pci)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
