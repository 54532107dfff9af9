package hostinfo

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRead on hosts of which some things cannot be found out.
func TestRead(t *testing.T) {
	root := t.TempDir()
	if got := Read(t.Context(), root, ""); got.MachineID != "" || got.SystemUUID != "" ||
		got.OSImage != "Linux" || got.Swap != nil || got.KernelVersion == "" ||
		got.OperatingSystem != "linux" || got.Architecture == "" || got.KubeletVersion == "" {
		t.Errorf("of nothing: %+v", got)
	}
	for path, content := range map[string]string{
		"etc/machine-id":     "m1\n",
		"usr/lib/os-release": "NAME=x\nPRETTY_NAME=\"An \\\"OS\\\" 1\"\n",
		"proc/meminfo":       "MemTotal: 9 kB\nSwapTotal:       2 kB\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := Read(t.Context(), root, "b")
	if got.MachineID != "m1" || got.SystemUUID != "m1" || got.OSImage != `An "OS" 1` ||
		got.RunningInUserNamespace == nil || got.Swap == nil || *got.Swap.Capacity != 2048 ||
		got.BootID != "b" {
		t.Errorf("%+v", got)
	}
}

// CPUs that count how often they were throttled are found in the order of their numbers, and one
// that is offline or no CPU is not.
func TestThermalPaths(t *testing.T) {
	root := t.TempDir()
	cpus := filepath.Join(root, "sys/devices/system/cpu")
	if got := ThermalPaths(root); len(got) > 0 {
		t.Errorf("without a sysfs: %q", got)
	}
	for _, dir := range []string{"cpu2/thermal_throttle", "cpu10/thermal_throttle", "cpu3/topology",
		"cpu99/thermal_throttle", "cpufreq"} {
		if err := os.MkdirAll(filepath.Join(cpus, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(cpus, "possible"), []byte("0-15\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{"/sys/devices/system/cpu/cpu2/thermal_throttle",
		"/sys/devices/system/cpu/cpu10/thermal_throttle"}
	if got := ThermalPaths(root); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
