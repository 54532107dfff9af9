//go:build cgo

package dra

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	nvmllib "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/nvml"
)

// The machine's own GPUs are in slices as nvidia-smi names them, and a claim gets one: its CDI devices
// are there. The test is left out where there is no driver.
func TestRealGPUsByClaim(t *testing.T) {
	driver := nvml.Driver{Library: nvmllib.New()}
	session, err := driver.Open()
	if errors.Is(err, gpu.ErrNoDriver) {
		t.Skip("LEFT OUT: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	session.Close()
	set := gpu.Defaults()
	set.CDI.Dir = t.TempDir()
	d, err := New(Config{Config: gpu.Config{Driver: driver, Settings: set},
		Claims: claimsOf(t.TempDir(), fake.NewClientset())})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{d, t, nil, set.CDI.Dir}
	state := read(t, driver)
	b.follow(state)
	has := b.inventoryOf(state)
	t.Log(story(has))
	out, err := exec.Command("nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader").Output()
	if err != nil {
		t.Skip("LEFT OUT: nvidia-smi: ", err)
	}
	var names []string
	for _, d := range has.list().Resources("node").Pools["node"].Slices[0].Devices {
		names = append(names, *d.Attributes["uuid"].StringValue+", "+*d.Attributes["productName"].StringValue)
	}
	if want := strings.Split(strings.TrimSpace(string(out)), "\n"); !slices.Equal(names, want) {
		t.Errorf("the slices have %q, nvidia-smi %q", names, want)
	}
	claim := claimOf("one", "gpu-0")
	devices, err := b.prepare(claim)
	if err != nil || len(devices) != 1 {
		t.Fatalf("prepared: %+v, %v", devices, err)
	}
	nodes := b.resolve(devices[0].CDIDeviceIDs)
	t.Logf("%q give %q", devices[0].CDIDeviceIDs, nodes)
	if !slices.ContainsFunc(nodes, func(path string) bool { return strings.HasPrefix(path, "/dev/nvidia") }) {
		t.Error("a container gets no GPU")
	}
	for _, path := range nodes {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := b.unprepare(claim); err != nil {
		t.Error(err)
	}
	if got := b.files(); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}
