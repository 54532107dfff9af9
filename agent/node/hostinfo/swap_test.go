package hostinfo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/numalet/numalet/cri"
)

// What the kernel limits is seen where its files are: of cgroup v2 in the agent's own cgroup.
func TestSwap(t *testing.T) {
	base := map[string]string{
		"proc/meminfo": "MemTotal: 8 kB\nSwapTotal:  2 kB\n",
	}
	for name, tt := range map[string]struct {
		files []string
		want  cri.Swap
	}{
		"none": {nil, cri.Swap{Limited: true, Bytes: 2048}},
		"v1": {[]string{"sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"},
			cri.Swap{Controlled: true, Limited: true, Bytes: 2048}},
		"v2": {[]string{"sys/fs/cgroup/cgroup.controllers",
			"sys/fs/cgroup/kubepods/memory.swap.max"},
			cri.Swap{Controlled: true, Unified: true, Limited: true, Bytes: 2048}},
		"v2 in a container": {[]string{"sys/fs/cgroup/cgroup.controllers",
			"sys/fs/cgroup/memory.swap.max"},
			cri.Swap{Controlled: true, Unified: true, Limited: true, Bytes: 2048}},
		"v2 without accounting": {[]string{"sys/fs/cgroup/cgroup.controllers"},
			cri.Swap{Unified: true, Limited: true, Bytes: 2048}},
	} {
		root := t.TempDir()
		write := func(file, text string) {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for file, text := range base {
			write(file, text)
		}
		for _, file := range tt.files {
			write(file, "max\n")
		}
		if got := Swap(root, true); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// AppArmor is enforced where the kernel says so and shows its policies.
func TestEnforcesAppArmor(t *testing.T) {
	root := t.TempDir()
	const enabled = "sys/module/apparmor/parameters/enabled"
	for _, d := range []string{filepath.Dir(enabled), "sys/kernel/security/apparmor"} {
		if EnforcesAppArmor(root) {
			t.Errorf("before there is %s", d)
		}
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]bool{"": false, "N\n": false, "Y\n": true} {
		if err := os.WriteFile(filepath.Join(root, enabled), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if EnforcesAppArmor(root) != want {
			t.Errorf("%q: not %v", text, want)
		}
	}
}
