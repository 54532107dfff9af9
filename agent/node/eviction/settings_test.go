package eviction

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/node/config"
)

// configured returns the thresholds of a configuration file and a drop-in.
func configured(t *testing.T, file, dropIn string, args ...string) []Threshold {
	t.Helper()
	dir := t.TempDir()
	for path, text := range map[string]string{"k.yaml": file, "d/one.conf": dropIn} {
		path = filepath.Join(dir, path)
		text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + text
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.FromArgs(append([]string{"--config=" + filepath.Join(dir, "k.yaml"),
		"--config-dir=" + filepath.Join(dir, "d"), "--root-dir=" + dir}, args...))
	if err != nil {
		t.Fatal(err)
	}
	thresholds, err := Parse(&c.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	return thresholds
}

// belowDefaults are amounts of which each is just below its default threshold.
func belowDefaults() Readings {
	return Readings{
		MemoryAvailable: {100<<20 - 1, 4 << 30}, PIDAvailable: {1, 1000},
		NodeFSAvailable: {99, 1000}, ContainerFSAvailable: {99, 1000}, ImageFSAvailable: {149, 1000},
		NodeFSInodesFree: {49, 1000}, ContainerFSInodesFree: {49, 1000}, ImageFSInodesFree: {49, 1000},
	}
}

// TestDefaultsOfEvictionHard: what a node relieves, and the conditions that hold, where each signal is just
// below its default threshold. Thresholds that evictionHard does not name keep their defaults with
// mergeDefaultEvictionSettings, or if a drop-in alone names some, and else vanish. That flags name some
// leaves no others.
func TestDefaultsOfEvictionHard(t *testing.T) {
	const merge = "mergeDefaultEvictionSettings: true\n"
	const memory, low = "evictionHard: {memory.available: 1Gi}\n", "evictionHard: {memory.available: 1Mi}\n"
	const soft = "evictionSoft: {pid.available: 50%}\nevictionSoftGracePeriod: {pid.available: 1h}\n"
	const onlyMemory = "[MemoryPressure] [memory.available]"
	const disk = "nodefs.available imagefs.available containerfs.available " +
		"nodefs.inodesFree imagefs.inodesFree containerfs.inodesFree]"
	const all, onlyDisk = "[DiskPressure MemoryPressure] [memory.available " + disk, "[DiskPressure] [" + disk
	for name, tc := range map[string]struct {
		file, dropIn, flag string
		want               string
	}{
		"nothing is named":              {want: all},
		"no threshold is named":         {file: "evictionHard: {}\n", want: "[] []"},
		"no threshold is named, merged": {file: "evictionHard: {}\n" + merge, want: all},
		"one is named":                  {file: memory, want: onlyMemory},
		"one that is not met":           {file: low, want: "[] []"},
		"one that is not met, merged":   {file: low + merge, want: onlyDisk},
		"one is turned off, merged": {file: "evictionHard: {memory.available: 0%}\n" + merge,
			want: onlyDisk},
		"one without a default, merged": {file: "evictionHard: {pid.available: \"1\"}\n" + merge, want: all},
		"in a drop-in":                  {dropIn: low, want: onlyDisk},
		"in a drop-in that removes it":  {dropIn: "evictionHard: {memory.available: null}\n", want: onlyDisk},
		"in a drop-in beside a file's":  {file: "evictionHard: {}\n", dropIn: memory, want: onlyMemory},
		"in a drop-in that merges":      {file: low, dropIn: merge, want: onlyDisk},
		"in a flag":                     {flag: "memory.available<1Gi", want: onlyMemory},
		"in a flag, the file is merged": {file: memory + merge, flag: "memory.available<1Mi", want: "[] []"},
		"soft ones replace no hard ones": {file: soft,
			want: "[DiskPressure MemoryPressure PIDPressure] [memory.available " + disk},
	} {
		var args []string
		if tc.flag != "" {
			args = append(args, "--eviction-hard="+tc.flag)
		}
		set := rules{configured(t, tc.file, tc.dropIn, args...), time.Minute}
		_, v := state{}.step(belowDefaults(), set, time.Unix(0, 0))
		if got := fmt.Sprint(v.pressure, " ", v.due); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// The minimum reclaim of a signal is of its default threshold, too.
func TestMinimumReclaimOfDefaults(t *testing.T) {
	for file, want := range map[string]bool{
		"": false, "evictionMinimumReclaim: {nodefs.available: 5%}\n": true,
	} {
		file += "evictionHard: {memory.available: 1Mi}\nmergeDefaultEvictionSettings: true\n"
		set := rules{configured(t, file, ""), time.Second}
		s, _ := state{}.step(Readings{NodeFSAvailable: {99, 1000}}, set, time.Unix(0, 0))
		_, v := s.step(Readings{NodeFSAvailable: {149, 1000}}, set, time.Unix(60, 0))
		if met := v.relieve != nil; met != want {
			t.Errorf("%q: with 149 of 1000 available after 99 a threshold is met: %t", file, met)
		}
	}
}
