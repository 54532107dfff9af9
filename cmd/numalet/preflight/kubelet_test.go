package preflight

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFindKubelet: the flags are those of the process of that name; one that has ended meanwhile has none.
func TestFindKubelet(t *testing.T) {
	proc := t.TempDir()
	write(t, filepath.Join(proc, "1", "comm"), "systemd\n")
	write(t, filepath.Join(proc, "6", "comm"), "kubelet\n")
	write(t, filepath.Join(proc, "6", "cmdline"), "")
	if p, err := FindKubelet(proc); p != nil || err != nil {
		t.Errorf("found %+v, %v", p, err)
	}
	write(t, filepath.Join(proc, "7", "comm"), "kubelet\n")
	write(t, filepath.Join(proc, "7", "cmdline"), "/usr/bin/kubelet\x00--config=/c.yaml\x00--v\x002\x00")
	p, err := FindKubelet(proc)
	if err != nil || p == nil || p.PID != 7 || !slices.Equal(p.Args, []string{"--config=/c.yaml", "--v", "2"}) {
		t.Errorf("found %+v, %v", p, err)
	}
	write(t, filepath.Join(proc, "8", "comm"), "kubelet\n")
	write(t, filepath.Join(proc, "8", "cmdline"), "kubelet\x00")
	if _, err := FindKubelet(proc); !errors.Is(err, ErrTwo) {
		t.Errorf("two kubelets: %v", err)
	}
}

// TestKubeadmFiles: the flags are those of the units, in their order.
func TestKubeadmFiles(t *testing.T) {
	dir := t.TempDir()
	f := Files{Config: filepath.Join(dir, "config.yaml"), Kubeconfig: "/k", Bootstrap: "/b",
		Flags: filepath.Join(dir, "flags.env"), Extra: []string{filepath.Join(dir, "default"), filepath.Join(dir, "none")}}
	if args, err := f.Args(); args != nil || err != nil {
		t.Errorf("a node of no cluster has %q, %v", args, err)
	}
	write(t, f.Config, "")
	write(t, f.Flags, "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.5 --pod-infra-container-image=pause\"\n")
	write(t, f.Extra[0], "# people's\nKUBELET_EXTRA_ARGS=--v=4\nOTHER=--no\n")
	args, err := f.Args()
	want := []string{"--bootstrap-kubeconfig=/b", "--kubeconfig=/k", "--config=" + f.Config, "--node-ip=10.0.0.5",
		"--pod-infra-container-image=pause", "--v=4"}
	if err != nil || !slices.Equal(args, want) {
		t.Errorf("%q, %v, want %q", args, err, want)
	}
}
