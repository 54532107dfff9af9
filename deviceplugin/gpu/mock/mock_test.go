package mock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

func open(t *testing.T, name string) *Rig {
	t.Helper()
	m, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return New(m)
}

func do(t *testing.T, r *Rig, orders ...string) {
	t.Helper()
	for _, order := range orders {
		if err := r.Do(order); err != nil {
			t.Fatal(err)
		}
	}
}

func snapshot(t *testing.T, r *Rig) gpu.Snapshot {
	t.Helper()
	session, err := r.Open()
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each machine has GPUs on a valid host, and symmetric links.
func TestMachines(t *testing.T) {
	for _, name := range Names() {
		r := open(t, name)
		s := snapshot(t, r)
		host, err := r.Machine().Topology()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, g := range s.GPUs {
			if !host.NodeSet().Has(g.Node) {
				t.Errorf("%s: GPU %d is on node %d, the host has %s", name, i, g.Node, host.NodeSet())
			}
			for j := range s.GPUs {
				if s.Links[i][j] != s.Links[j][i] {
					t.Errorf("%s: %d-%d: %v and %v", name, i, j, s.Links[i][j], s.Links[j][i])
				}
				far := g.Node != s.GPUs[j].Node
				if far != (s.Links[i][j].Path == prefer.System) {
					t.Errorf("%s: %d-%d on nodes %d, %d: %s", name, i, j, g.Node, s.GPUs[j].Node,
						s.Links[i][j].Path)
				}
			}
			if want := r.Machine().NVLink.Links; g.Reading.LinksUp != want && name != "h100nvl8" {
				t.Errorf("%s: GPU %d has %d NVLinks, want %d", name, i, g.Reading.LinksUp, want)
			}
		}
	}
}

func TestLinks(t *testing.T) {
	for _, c := range []struct {
		machine string
		i, j    int
		want    prefer.Link
	}{
		{"dgxa100", 0, 1, prefer.Link{NVLink: 300, Path: prefer.Switches}},
		{"dgxh100", 0, 3, prefer.Link{NVLink: 450, Path: prefer.Node}},
		{"dgxh100", 0, 4, prefer.Link{NVLink: 450, Path: prefer.System}},
		{"dgxb200", 0, 7, prefer.Link{NVLink: 900, Path: prefer.System}},
		{"dgx1", 0, 3, prefer.Link{NVLink: 50, Path: prefer.Node}},
		{"dgx1", 0, 1, prefer.Link{NVLink: 25, Path: prefer.Switch}},
		{"dgx1", 0, 5, prefer.Link{Path: prefer.System}},
		{"h100nvl8", 0, 2, prefer.Link{NVLink: 300, Path: prefer.Node}},
		{"pcie8", 0, 1, prefer.Link{Path: prefer.Switch}},
	} {
		if got := snapshot(t, open(t, c.machine)).Links[c.i][c.j]; got != c.want {
			t.Errorf("%s %d-%d: %v, want %v", c.machine, c.i, c.j, got, c.want)
		}
	}
}

// Orders take effect, and a reset cures what it can.
func TestOrders(t *testing.T) {
	r := open(t, "dgxh100")
	do(t, r, "ecc 1 3", "remap 2 pending", "remap 3 failed", "links 4 2", "lose 5", "remove 6",
		"action 7 reset")
	s := snapshot(t, r)
	if len(s.GPUs) != 7 || len(s.Links) != 7 || len(s.Links[0]) != 7 {
		t.Fatalf("there are %d GPUs, %d links", len(s.GPUs), len(s.Links))
	}
	readings := []gpu.Reading{
		{LinksUp: 18, Advises: true},
		{LinksUp: 18, Advises: true, Uncorrected: 3},
		{LinksUp: 18, Advises: true, RemapPending: true},
		{LinksUp: 18, Advises: true, RemapFailed: true},
		{LinksUp: 16, LinksDown: 2, Advises: true},
		{Lost: true},
		{LinksUp: 18, Advises: true, Action: gpu.Reset},
	}
	for n, want := range readings {
		if got := s.GPUs[n].Reading; got != want {
			t.Errorf("%s: %+v, want %+v", s.GPUs[n].UUID, got, want)
		}
	}
	if got := s.Links[0][4].NVLink; got != 400 {
		t.Errorf("with two links down there are %d GB/s", got)
	}
	for i := range 8 {
		do(t, r, "reset "+string(rune('0'+i)))
	}
	for i, g := range snapshot(t, r).GPUs {
		if got, want := g.Reading, (gpu.Reading{LinksUp: 18, Advises: true,
			RemapFailed: i == 3}); got != want {
			t.Errorf("after a reset GPU %d is %+v", i, got)
		}
	}
}

// A session waits for events, and ends with the driver.
func TestDriverGoesAndComes(t *testing.T) {
	r := open(t, "gb200")
	session, err := r.Open()
	if err != nil {
		t.Fatal(err)
	}
	do(t, r, "xid 2 79")
	event, found, err := session.Wait(t.Context(), time.Hour)
	want := gpu.Event{GPU: UUID(2), Instance: -1, Compute: -1, Kind: gpu.XIDEvent, XID: 79}
	if !found || err != nil || event != want {
		t.Errorf("%+v, %t, %v", event, found, err)
	}
	if _, found, err := session.Wait(t.Context(), time.Nanosecond); found || err != nil {
		t.Errorf("without an event: %t, %v", found, err)
	}
	do(t, r, "unload")
	if _, err := r.Open(); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("opened without a driver: %v", err)
	}
	do(t, r, "load")
	if _, err := session.Read(); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("read in a session of before: %v", err)
	}
	snapshot(t, r)
}

func TestDivide(t *testing.T) {
	r := open(t, "dgxh100")
	do(t, r, "mig 0 on", "divide 0 3g.40gb=1 1g.10gb=4")
	first := snapshot(t, r).GPUs[0]
	if !first.MIG || len(first.Instances) != 5 || first.Instances[4].Profile != "1g.10gb" {
		t.Fatalf("%+v", first)
	}
	do(t, r, "divide 0 3g.40gb=1 2g.20gb=2")
	second := snapshot(t, r).GPUs[0].Instances
	if second[0].UUID != first.Instances[0].UUID || second[1].UUID == first.Instances[1].UUID {
		t.Errorf("%+v became %+v", first.Instances, second)
	}
	do(t, r, "mig 0 off")
	if g := snapshot(t, r).GPUs[0]; g.MIG || g.Instances != nil {
		t.Errorf("%+v", g)
	}
}

// The error of a wrong order says what would be right; nothing changes.
func TestWrongOrders(t *testing.T) {
	r := open(t, "dgxh100")
	for order, want := range map[string]string{
		"": "the order is empty", "explode 3": "there is no order", "lose": "want a GPU, 0 to 7",
		"lose 8": "want a GPU", "xid 1": "want a number", "remap 1 maybe": "pending or failed or done",
		"links 1 19": "has 18 NVLinks", "divide 1 1g.10gb=7": "mig 1 on", "mig 1 yes": "on or off",
	} {
		if err := r.Do(order); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", order, err)
		}
	}
	do(t, r, "mig 0 on")
	for _, order := range []string{"divide 0 1g.10gb=8", "divide 0 7g.80gb=1 1g.10gb=1",
		"divide 0 9g.10gb=1", "divide 0 1g.10gb"} {
		if err := r.Do(order); err == nil {
			t.Errorf("%q was done", order)
		}
	}
	if err := open(t, "pcie8").Do("mig 0 on"); err == nil {
		t.Error("an L40S is in MIG mode")
	}
}

// A file describes a machine, or its error says what is wrong.
func TestMachineFromFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine.yaml")
	good := "name: mine\nmodel: {name: G, device: \"0x1\"}\nnvlink: {links: 1, gbps: 25, pairs: " +
		"{0-1: 1}}\ngpus:\n- {bus: \"0000:01:00.0\", at: 0/0}\n- {bus: \"0000:02:00.0\", at: 0/1}\n" +
		"host: {sockets: 1, nodesPerSocket: 1, coresPerNode: 4, threadsPerCore: 1, " +
		"memoryPerNode: 8Gi}\n"
	for _, c := range []struct{ from, to, want string }{
		{"", "", ""},
		{"at: 0/0", "at: \"0\"", "host bridge is missing"},
		{"at: 0/0", "at: here", "want node/bridge"},
		{"0-1: 1", "0-2: 1", "nvlink.pairs[0-2]"},
		{"0-1: 1", "0-1: 2", "1 to 1 links"},
		{"sockets: 1", "sockets: 0", "host: give"},
		{"name: mine", "nome: mine", "unknown field"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Open(file)
		if c.want == "" && (err != nil || New(m).linksOf(1) != 1) {
			t.Errorf("%v", err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.to, err, c.want)
		}
	}
	if _, err := Open("dgx9"); err == nil || !strings.Contains(err.Error(), "one of dgx1, ") {
		t.Errorf("%v", err)
	}
}

// The page names every machine.
func TestPageNamesMachines(t *testing.T) {
	page, err := os.ReadFile("../../../docs/gpu-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	if list := strings.Join(Names()[:len(Names())-1], ", "); !strings.Contains(
		strings.Join(strings.Fields(string(page)), " "), list) {
		t.Errorf("docs/gpu-plugin.md does not have %s", list)
	}
}
