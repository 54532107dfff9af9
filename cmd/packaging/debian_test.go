package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a folder that dpkg takes for a machine with systemd. What systemctl is asked is written down.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("dpkg runs the scripts of packages in another root directory, as root only")
	}
	m := machine{t, t.TempDir()}
	for _, dir := range []string{"bin", "run/systemd/system", "tmp", "usr/bin", "var/lib/dpkg/info",
		"var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/kubelet/pods/u1/volumes", "etc"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(m.root, "var/lib/dpkg/status"), "", 0o644)
	write(t, filepath.Join(m.root, "bin/systemctl"), "#!/bin/sh\necho \"$*\" >>/tmp/asked\n", 0o755)
	for _, program := range []string{"sh", "rm", "rmdir"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		m.copy(path, "/bin/"+program)
		libraries, err := linked(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, library := range libraries {
			m.copy(library, library)
		}
	}
	return m
}

func (m machine) copy(from, to string) {
	m.t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	to = filepath.Join(m.root, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		m.t.Fatal(err)
	}
	write(m.t, to, string(raw), 0o755)
}

// dpkg runs it on the machine, and returns what systemctl was asked meanwhile.
func (m machine) dpkg(args ...string) (asked string) {
	m.t.Helper()
	cmd := exec.Command("dpkg", append([]string{"--root=" + m.root}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("dpkg %q: %v\n%s", args, err, out)
	}
	raw, _ := os.ReadFile(filepath.Join(m.root, "tmp/asked"))
	_ = os.Remove(filepath.Join(m.root, "tmp/asked"))
	return strings.ReplaceAll(strings.TrimSpace(string(raw)), "\n", "; ")
}

func (m machine) has(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}

// TestDebianPackage: a first installation starts nothing, an upgrade restarts an agent that runs and keeps
// what people have written, a removal stops it, and after a purge nothing of numalet is left. What is the
// kubelet's stays.
func TestDebianPackage(t *testing.T) {
	m := newMachine(t)
	stage := staged(t)
	atRoot(t)
	older := filepath.Join(made(t, "0.1.0~git1", stage), "numalet_0.1.0~git1-1_amd64.deb")
	newer := filepath.Join(made(t, "0.1.0", stage), "numalet_0.1.0-1_amd64.deb")

	if asked := m.dpkg("-i", older); asked != "daemon-reload" {
		t.Errorf("the first installation asks systemctl: %s", asked)
	}
	for _, path := range []string{"usr/bin/numalet", "usr/lib/systemd/system/numalet.service",
		"etc/default/numalet", "etc/systemd/system/numalet.service.d", "usr/share/man/man1/numalet.1.gz"} {
		if !m.has(path) {
			t.Errorf("%s is not installed", path)
		}
	}
	own := filepath.Join(m.root, "etc/default/numalet")
	write(t, own, "NUMALET_ARGS=--v=4\n", 0o644)
	for _, path := range []string{"numalet_state", "pods/u1/numalet_claims", "cpu_manager_state", "config.yaml"} {
		write(t, filepath.Join(m.root, "var/lib/kubelet", path), "x", 0o600)
	}
	if asked := m.dpkg("-i", newer); asked != "daemon-reload; try-restart numalet.service" {
		t.Errorf("the upgrade asks systemctl: %s", asked)
	}
	if raw, err := os.ReadFile(own); err != nil || string(raw) != "NUMALET_ARGS=--v=4\n" {
		t.Errorf("after the upgrade the flags are %q, %v", raw, err)
	}
	if asked := m.dpkg("-r", "numalet"); asked != "disable --now numalet.service; daemon-reload" {
		t.Errorf("the removal asks systemctl: %s", asked)
	}
	if m.has("usr/bin/numalet") || !m.has("etc/default/numalet") || !m.has("var/lib/kubelet/numalet_state") {
		t.Error("a removal takes the program, and leaves the settings and the record of pods")
	}
	m.dpkg("-P", "numalet")
	for _, path := range listed(t, m.root) {
		if strings.Contains(path, "numalet") && !strings.HasPrefix(path, "var/lib/dpkg") {
			t.Errorf("%s is left", path)
		}
	}
	if m.has("etc/systemd/system/numalet.service.d") || !m.has("var/lib/kubelet/cpu_manager_state") ||
		!m.has("var/lib/kubelet/config.yaml") || !m.has("var/lib/kubelet/pods/u1/volumes") {
		t.Error("a purge takes what is numalet's, and leaves what is the kubelet's")
	}
}
