//go:build cgo

package nvml

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/topology"
)

// openReal opens the machine's own driver; a test is left out where there is none.
func openReal(t *testing.T) gpu.Session {
	t.Helper()
	session, err := Driver{Library: nvml.New()}.Open()
	if errors.Is(err, gpu.ErrNoDriver) {
		t.Skip("LEFT OUT: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session
}

// A real driver is read as nvidia-smi and sysfs show it.
func TestRealDriver(t *testing.T) {
	session := openReal(t)
	snapshot, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("driver %s, warnings %q", snapshot.Driver, snapshot.Warnings)
	const columns = "index,uuid,name,pci.bus_id,driver_version,mig.mode.current," +
		"ecc.errors.uncorrected.volatile.total"
	out, err := exec.Command("nvidia-smi", "--query-gpu="+columns, "--format=csv,noheader").Output()
	if err != nil {
		t.Skip("LEFT OUT: nvidia-smi: ", err)
	}
	lines, err := csv.NewReader(strings.NewReader(strings.ReplaceAll(string(out), ", ", ","))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != len(snapshot.GPUs) {
		t.Fatalf("%d GPUs, nvidia-smi has %d", len(snapshot.GPUs), len(lines))
	}
	for i, g := range snapshot.GPUs {
		t.Logf("%+v", g)
		mode, errors := "Disabled", strconv.FormatUint(g.Reading.Uncorrected, 10)
		if g.MIG {
			mode = "Enabled"
		}
		if smi := lines[i]; strings.HasPrefix(smi[5], "[") { // the GPU has no such mode
			mode = smi[5]
		}
		if smi := lines[i]; strings.HasPrefix(smi[6], "[") { // the GPU has no ECC, or it is off
			errors = smi[6]
		}
		got := []string{strconv.Itoa(g.Index), g.UUID, g.Name, "0000" + strings.ToUpper(g.Bus),
			snapshot.Driver, mode, errors}
		if fmt.Sprint(got) != fmt.Sprint(lines[i]) {
			t.Errorf("read %q, nvidia-smi has %q", got, lines[i])
		}
		for _, file := range []string{
			fmt.Sprint("/dev/nvidia", g.Minor), "/dev/nvidiactl",
			filepath.Join("/sys/bus/pci/devices", g.Bus),
		} {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("GPU %d: %v", g.Index, err)
			}
		}
		node := topology.NoNode
		text, err := os.ReadFile(filepath.Join("/sys/bus/pci/devices", g.Bus, "numa_node"))
		if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil && n >= 0 {
			node = topology.NodeID(n)
		}
		if g.Node != node {
			t.Errorf("GPU %d is near node %d, sysfs has %d", g.Index, g.Node, node)
		}
	}
}

// A real driver reports the XID of a program that reads memory that is not there. The GPU works on.
func TestRealXID(t *testing.T) {
	session := openReal(t)
	compiler, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("LEFT OUT: ", err)
	}
	before, err := session.Read() // which subscribes to events
	if err != nil {
		t.Fatal(err)
	}
	if event, found, err := session.Wait(t.Context(), time.Second); found || err != nil {
		t.Errorf("before the fault: %+v, %v", event, err)
	}
	source := filepath.Join(t.TempDir(), "fault.cu")
	// The address is of neither processor. A kernel that was not started is no fault.
	text := `
__global__ void touch(int **p) { *p[0] = 1; }
int main() {
	int **p;
	if (cudaMallocManaged(&p, sizeof *p) != cudaSuccess) return 2;
	p[0] = (int *)64;
	touch<<<1, 1>>>(p);
	if (cudaGetLastError() != cudaSuccess) return 3;
	return cudaDeviceSynchronize() == cudaSuccess ? 4 : 0;
}
`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	program := strings.TrimSuffix(source, ".cu")
	if out, err := exec.Command(compiler, "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Fatalf("the program had no such fault: %v %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	event, found, err := session.Wait(ctx, 20*time.Second)
	t.Logf("%+v", event)
	if err != nil || !found || event.Kind != gpu.XIDEvent || event.XID != 31 ||
		event.GPU != before.GPUs[0].UUID {
		t.Errorf("event %+v, %v, %v; want XID 31 of %s", event, found, err, before.GPUs[0].UUID)
	}
	after, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	if after.GPUs[0].Reading != before.GPUs[0].Reading {
		t.Errorf("reading %+v, before %+v", after.GPUs[0].Reading, before.GPUs[0].Reading)
	}
}
