package devices

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

const gpu, nic = "example.com/gpu", "example.com/nic"

func TestList(t *testing.T) {
	inventory := devicemanager.Inventory{Resources: map[string]devicemanager.Resource{
		nic: {Devices: []*devicemanager.Device{{ID: "nic-0"}, {ID: "0000:18:00.0"}, {ID: "0000:02:00.0"}},
			Addresses: map[string]string{"nic-0": "0000:1b:00.0"}},
		gpu: {Connected: true, Devices: []*devicemanager.Device{
			{ID: "gpu-2", Healthy: true, Nodes: topology.NewNodeSet(0, 1)},
			{ID: "gpu-10", Cordoned: true},
		}, Reasons: devicemanager.Reasons{ByID: map[string]string{"gpu-10": "no power"}}},
	}}
	state := allocation.State{Pods: map[types.UID]allocation.Pod{"u": {
		Namespace: "team", Name: "train", Containers: map[string]allocation.Container{
			"init": {allocation.Devices{{Resource: gpu, IDs: []string{"gpu-10"}}}},
			"main": {allocation.Devices{
				{Resource: gpu, IDs: []string{"gpu-10", "gpu-11"}}}, allocation.Claims{{Name: "rdma",
				Devices: []claim.Device{{Driver: "net", Pool: "node", Name: "eth0",
					Place: claim.Place{PCI: "0000:18:00.0"}}}}}},
		},
	}}, PendingReleases: []allocation.PendingRelease{
		{Namespace: "team", Name: "gone", Resource: nic, IDs: []string{"nic-0"}},
	}}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := topologytest.Fixture(t, "dgx-h100")
	got := List(m, inventory, state, []cordon.Cordon{
		{Resource: gpu, ID: "gpu-10", Reason: "hot", Since: since},
		{Resource: gpu, ID: "gpu-11", Since: since},
		{Resource: "example.com/away", ID: "a", Since: since},
	})
	const at = `"since":"2026-01-02T03:04:05Z"`
	want := []string{
		`{"resource":"example.com/away","id":"a","health":"Absent","cordon":{` + at + `}}`,
		`{"resource":"example.com/gpu","id":"gpu-2","health":"Healthy","nodes":"0-1"}`,
		`{"resource":"example.com/gpu","id":"gpu-10","health":"Unhealthy",` +
			`"reason":"no power","heldBy":["team/train/init","team/train/main"],"cordon":{"reason":"hot",` + at + `}}`,
		`{"resource":"example.com/gpu","id":"gpu-11","health":"Absent",` +
			`"heldBy":["team/train/main"],"cordon":{` + at + `}}`,
		`{"resource":"example.com/nic","id":"0000:02:00.0","health":"Unknown","pci":"0000:02:00.0"}`,
		`{"resource":"example.com/nic","id":"0000:18:00.0","health":"Unknown","pci":"0000:18:00.0",` +
			`"switch":"0000:16:00.0","root":"pci0000:15","claimed":"device 0000:18:00.0 of example.com/nic and ` +
			`device net/node/eth0 of claim rdma, which pod team/train has, are the same hardware: both are ` +
			`the PCI device 0000:18:00.0"}`,
		`{"resource":"example.com/nic","id":"nic-0","health":"Unknown","pci":"0000:1b:00.0",` +
			`"switch":"0000:16:00.0","root":"pci0000:15","releasedBy":"team/gone"}`,
	}
	var lines []string
	for _, row := range got {
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(text))
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("listed\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// What was written down is told, also when who asked has gone before readers see it.
func TestToldWhenNobodyWaits(t *testing.T) {
	dir := t.TempDir()
	book, err := cordon.Open(filepath.Join(dir, cordon.FileName))
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := devicemanager.New(devicemanager.Config{
		Dirs: devicemanager.Dirs{Plugins: dir}, Cordons: book,
	})
	if err != nil {
		t.Fatal(err)
	}
	var reported []string
	c := Config{
		Plugins: plugins, State: func() allocation.State { return allocation.State{} },
		Machine: func() *topology.Machine { return nil },
		Tell:    func(_, reason, message string) { reported = append(reported, reason+": "+message) },
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		_, err := c.cordon(gone, Question{Resource: gpu, ID: "gpu-0", Reason: "hot"})
		_, uncordonErr := c.uncordon(gone, Question{Resource: nic, ID: "never"})
		if err == nil || uncordonErr == nil {
			t.Error("readers cannot have seen it")
		}
	}
	if _, err := c.uncordon(gone, Question{Resource: gpu, ID: "gpu-0"}); err == nil {
		t.Error("readers cannot have seen it")
	}
	want := "DeviceCordoned: Device gpu-0 of example.com/gpu is not given to new containers: hot\n" +
		"DeviceUncordoned: Device gpu-0 of example.com/gpu is given to new containers again"
	if got := strings.Join(reported, "\n"); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
}

// A question that does not say what is meant is not taken for another one.
func TestQuestions(t *testing.T) {
	for text, want := range map[string]string{
		`{"resource": "example.com/gpu", "id": "a"}`:               "",
		`{"resource": "example.com/gpu", "id": "a", "ids": ["b"]}`: "ids: unknown field",
		`{"resource": "example.com/gpu", "id": 1}`:                 "id: ",
		`{"resource": "example.com/gpu", "id": "a", "id": "b"}`:    "duplicate field",
		`{"id": "a"}`: "not the name of a resource",
		``:            "is empty",
		`[]`:          "the question ",
	} {
		_, err := read(strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
