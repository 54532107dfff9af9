package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

func runTopology(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newTopologyCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

// Each format shows the same machine, and the output can be read again.
func TestTopologyShowFormats(t *testing.T) {
	text, err := runTopology(t, "show", "--topology-from", "fixture:playground")
	if err != nil ||
		!strings.Contains(text, "2 sockets, 4 nodes, 32 cores, 64 CPUs, 256 GiB memory") {
		t.Errorf("text: %v\n%s", err, text)
	}
	asJSON, err := runTopology(t, "show", "--topology-from", "fixture:playground", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var spec topology.Spec
	if err := json.Unmarshal([]byte(asJSON), &spec); err != nil || len(spec.CPUs) != 64 {
		t.Errorf("JSON: %v, %d CPUs", err, len(spec.CPUs))
	}
	asYAML, err := runTopology(t, "show", "--topology-from", "fixture:playground", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"m.json": asJSON, "m.yaml": asYAML} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := runTopology(t, "show", "--topology-from", path, "-o", "json")
		if err != nil || again != asJSON {
			t.Errorf("%s does not read back: %v", name, err)
		}
	}
}

// CPUs that the kernel isolates are named if there is a kernel to ask.
func TestTopologyShowIsolated(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo": "MemTotal: 1048576 kB", "sys/devices/system/cpu/online": "0-1",
		"sys/devices/system/cpu/cpu0/online": "1", "sys/devices/system/cpu/cpu1/online": "1",
		"sys/devices/system/cpu/isolated": "1",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := runTopology(t, "show", "--topology-from", root)
	if err != nil || !strings.Contains(text, "scheduler (isolcpus) leaves CPUs 1 alone") ||
		strings.Contains(text, "nohz_full") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestTopologyErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"use text, json or yaml": {"show", "--topology-from", "fixture:laptop", "-o", "xml"},
		"there are:":             {"show", "--topology-from", "fixture:lap"},
		"fixture:NAME":           {"show", "--topology-from", "/does/not/exist"},
		"another file":           {"snapshot", "-o", os.DevNull},
	} {
		if _, err := runTopology(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestTopologyFixtures(t *testing.T) {
	out, err := runTopology(t, "fixtures")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range discover.FixtureNames() {
		if !strings.Contains(out, "fixture:"+name+" ") {
			t.Errorf("%s is not in\n%s", name, out)
		}
	}
}

func TestTopologySnapshotIsReadable(t *testing.T) {
	host, err := discover.Host("/")
	if err != nil {
		t.Skip("no machine in sysfs here: ", err)
	}
	path := filepath.Join(t.TempDir(), "host.tar.gz")
	if out, err := runTopology(t, "snapshot", "-o", path); err != nil {
		t.Fatal(err, out)
	}
	m, err := discover.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Online().Equals(host.Online()) || m.MemoryBytes() != host.MemoryBytes() {
		t.Errorf("captured %s and %d bytes", m.Online(), m.MemoryBytes())
	}
}
