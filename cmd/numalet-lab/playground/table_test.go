package playground

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/internal/goldentest"
)

func exampleRows() []assigned.Row {
	row := func(pod, container string, phase v1.PodPhase) assigned.Row {
		return assigned.Row{
			Key:   assigned.Key{Namespace: "default", Pod: pod, Container: container},
			State: assigned.State{Phase: phase},
		}
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
	fpga.State.Reason = "WaitingForDevicePlugin"
	fpga.State.Message = "no device plugin has registered example.com/fpga"
	big := row("too-big-node", "main", v1.PodFailed)
	big.State.Reason = "OutOfcpu"
	big.State.Message = "Pod was rejected: Node didn't have enough resource: cpu, " +
		"requested: 500000, used: 2500, capacity: 63000"
	return []assigned.Row{fpga, big, train, wide, web, side}
}

// Isolated CPUs are marked.
func TestIsolatedCell(t *testing.T) {
	r := assigned.Row{Place: assigned.Place{CPUs: "2-3", Exclusive: true}}
	for isolated, want := range map[bool]string{false: "2-3", true: "2-3 (isolated)"} {
		if r.Isolated = isolated; Cells(r)[3] != want {
			t.Errorf("isolated %v: %s, want %s", isolated, Cells(r)[3], want)
		}
	}
}

func TestTableGolden(t *testing.T) {
	for _, width := range []int{0, 100, 80, 60} {
		got := ansi.Strip(strings.Join(append([]string{Table(exampleRows(), width)},
			faint(Notes(exampleRows()), width)...), "\n")) + "\n"
		goldentest.Compare(t, filepath.Join("testdata", fmt.Sprintf("table-%d.txt", width)), got)
	}
}

// No line is wider than the terminal, whatever its width, down to the narrowest readable one.
func TestTableFits(t *testing.T) {
	for width := 51; width < 160; width++ {
		for line := range strings.Lines(Table(exampleRows(), width)) {
			if w := lipgloss.Width(strings.TrimRight(line, "\n")); w > width {
				t.Fatalf("at width %d a line is %d wide:\n%s", width, w, line)
			}
		}
	}
}

// examplePicture has everything that a picture can have.
func examplePicture() picture {
	return picture{
		rows: exampleRows(), wrong: []string{"refused: a.yaml: it has no containers"},
		free:  []string{"free: exclusive CPUs: 45 of 63 (14 of 15 on node 0, 31 of 48 on nodes 1-3)"},
		brief: "free: cpu 45 of 63; memory 145180Mi of 240540Mi",
		happens: []v1.Event{
			{Reason: "Started", Message: "Container started", Count: 1},
			{Reason: "BackOff", Message: "Back-off restarting failed container", Count: 3},
		},
	}
}

// Unhealthy devices of containers are marked, and ids stay within their cells.
func TestDeviceCells(t *testing.T) {
	r := assigned.Row{Place: assigned.Place{
		Devices: map[string][]string{"example.com/gpu": {"gpu-0", "gpu-1", "a\nb"}},
		DeviceHealth: map[string]map[string]v1.ResourceHealthStatus{"example.com/gpu": {
			"gpu-1": v1.ResourceHealthStatusUnhealthy, "a\nb": v1.ResourceHealthStatusUnknown,
		}},
	}}
	const want = "gpu-0 gpu-1 (unhealthy) gpu:a b (health unknown)"
	if got := Cells(r)[5]; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Place = assigned.Place{Devices: map[string][]string{"nvidia.com/gpu": {
		"GPU-8c2fa1b0-6e75-6d61-6c65-740000000001", "MIG-00000001-6e75-6d61-6c65-74000000000f::2",
	}}}
	const short = "GPU-8c2fa1b0 gpu:MIG-00000001::2"
	if got := Cells(r)[5]; got != short {
		t.Errorf("%q, want %q", got, short)
	}
}
