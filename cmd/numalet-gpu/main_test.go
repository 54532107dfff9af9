package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/internal/version"
	"github.com/numalet/numalet/topology/discover"
)

// The agent needs no cgo: NVIDIA's library is in this binary only.
func TestAgentIsWithoutNVML(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "../numalet")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.Contains(name, "NVIDIA") {
			t.Errorf("cmd/numalet imports %s", name)
		}
	}
}

func output(t *testing.T, env map[string]string, args ...string) (string, error) {
	t.Helper()
	cmd := newCommand(func(name string) string { return env[name] })
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Each machine is printed as one that an agent can read.
func TestPrintMachine(t *testing.T) {
	for _, name := range mock.Names() {
		text, err := output(t, nil, "--mock", name, "--print-machine")
		if err != nil {
			t.Fatal(err)
		}
		m, err := discover.ParseYAML(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if rig, err := mock.Open(name); err != nil || len(m.PCI()) != len(rig.GPUs) {
			t.Errorf("%s has %d PCI devices: %v", name, len(m.PCI()), err)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--mock", "dgx9"}, "one of dgx1, "},
		{[]string{"--print-machine"}, "are for --mock"},
		{[]string{"--mock", "dgx1", "--mig-strategy", "both"}, "none or single or mixed"},
		{[]string{"--mock", "dgx1", "--dra-mig", "dynamic"}, "--dra-mig has a meaning only with --dra"},
		{[]string{"--mock", "dgx1", "--dra", "--dra-mig", "yes"}, "want static or dynamic"},
		{[]string{"--mock", "dgx1", "--dra", "--dra-shares", "0"}, "--dra-shares \"0\""},
		{[]string{"--mock", "dgx1", "--dra", "--node-name", "n"}, "give --kubeconfig"},
		{[]string{"--mock", "dgx1", "--dra", "--kubeconfig", "/nonexistent/file"}, "/nonexistent/file"},
		{[]string{"--mock", "dgx1", "--kubelet-socket", "/nonexistent/kubelet.sock"}, "/nonexistent"},
	} {
		if _, err := output(t, nil, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}

// The version says which build it is, as numalet's does.
func TestVersion(t *testing.T) {
	out, err := output(t, nil, "--version")
	if want := "numalet-gpu " + version.Get().String() + "\n"; err != nil || out != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}
