package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSystemInfo on hosts of which some things cannot be found out.
func TestSystemInfo(t *testing.T) {
	root := t.TempDir()
	if got := systemInfo(t.Context(), root, node{}); got.MachineID != "" || got.SystemUUID != "" ||
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
	n := node{host: host{bootID: "b"}}
	got := systemInfo(t.Context(), root, n)
	if got.MachineID != "m1" || got.SystemUUID != "m1" || got.OSImage != `An "OS" 1` ||
		got.RunningInUserNamespace == nil || got.Swap == nil || *got.Swap.Capacity != 2048 || got.BootID != "b" {
		t.Errorf("%+v", got)
	}
}

func TestPlainVersion(t *testing.T) {
	for text, want := range map[string]string{
		"v2.4.2": "2.4.2", "1.33.0-rc.1": "1.33.0-rc.1", "v1.36.0-dev": "1.36.0-dev",
		"very new": "very new", "": "",
	} {
		if got := plainVersion(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// CPUs that count how often they were throttled are found in the order of their numbers, and one that
// is offline or no CPU is not.
func TestThermalPaths(t *testing.T) {
	root := t.TempDir()
	cpus := filepath.Join(root, "sys/devices/system/cpu")
	if got := thermalPaths(root); len(got) > 0 {
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
	if got := thermalPaths(root); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
