package playground

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func exampleRows() []placement.Row {
	row := func(pod, container string, phase v1.PodPhase) placement.Row {
		return placement.Row{Namespace: "default", Pod: pod, Container: container, Phase: phase}
	}
	train := row("train-node", "trainer", v1.PodRunning)
	train.CPUs, train.Exclusive, train.MemoryNodes = "1-2,33-34", true, "0-3"
	train.Devices = map[string][]string{
		"example.com/nic": {"nic-0"}, "example.com/gpu": {"gpu-0", "gpu-1"},
	}
	train.NUMANodes, train.Aligned = "0", ptr.To(true)
	wide := row("wide-node", "main", v1.PodRunning)
	wide.CPUs, wide.Exclusive, wide.MemoryNodes = "2-3,16-23,34-35,48-55", true, "0-3"
	wide.Devices = map[string][]string{"example.com/gpu": {"GPU-8c2f"}}
	wide.NUMANodes, wide.Aligned = "0,2", ptr.To(false)
	web := row("web-node", "nginx", v1.PodRunning)
	web.Namespace, web.CPUs, web.MemoryNodes = "shop", "1-63", "0-3"
	side := web
	side.Container = "side"
	fpga := row("fpga-node", "main", v1.PodPending)
	fpga.Reason = "WaitingForDevicePlugin"
	fpga.Message = "no device plugin has registered example.com/fpga"
	big := row("too-big-node", "main", v1.PodFailed)
	big.Reason = "OutOfcpu"
	big.Message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 500000, " +
		"used: 2500, capacity: 63000"
	return []placement.Row{fpga, big, train, wide, web, side}
}

func TestTableGolden(t *testing.T) {
	for _, width := range []int{0, 100, 80} {
		got := ansi.Strip(Table(exampleRows(), width)) + "\n"
		file := filepath.Join("testdata", fmt.Sprintf("table-%d.txt", width))
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("table at width %d:\n%s\nwant (-rewrite to accept):\n%s", width, got, want)
		}
	}
}

// No line is wider than the terminal, whatever its width, down to the narrowest that is readable.
func TestTableFits(t *testing.T) {
	for width := minTable; width < 160; width++ {
		for line := range strings.Lines(Table(exampleRows(), width)) {
			if w := lipgloss.Width(strings.TrimRight(line, "\n")); w > width {
				t.Fatalf("at width %d a line is %d wide:\n%s", width, w, line)
			}
		}
	}
}

func TestClipKeepsTheLastLine(t *testing.T) {
	text := "1\n2\n3\n4\n5\n6"
	if got, want := clip(text, 6), text; got != want {
		t.Errorf("clip to the height it has: %q, want %q", got, want)
	}
	want := "1\n2\n3\n... 2 lines more: make the window taller\n6"
	if got := clip(text, 5); got != want {
		t.Errorf("clip to 5 lines: %q, want %q", got, want)
	}
}
