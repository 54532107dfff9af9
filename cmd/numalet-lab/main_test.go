package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/internal/cli/clitest"
)

// run runs the program with these arguments and returns what it prints, and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand("numalet")
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHelpFits(t *testing.T) {
	clitest.HelpFits(t, func() *cobra.Command { return newCommand("numalet-lab") })
}

// The shell completes machines, workloads, policies and formats.
func TestCompletion(t *testing.T) {
	for typed, want := range map[string]string{
		"playground --topology-from ":     "fixture:laptop",
		"playground --runtime ":           "containerd",
		"rig --mix ":                      "training",
		"bench topology --mix ":           "training", // its former name
		"rig --policies none/restricted+": "none/restricted+prefer-closest-numa-nodes",
		"nodes --machine ":                "fixture:dgx-h100",
	} {
		clitest.Completes(t, newCommand("numalet"), typed, want)
	}
}

// A mistake is answered with one line that says what to do.
func TestMistakes(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct{ args, want []string }{
		{[]string{"plugin", "sim", "ctl", "stat"}, []string{`"stat"`, "ctl --help"}},
		{[]string{"plugin", "sim", "ctl", "state", "--control", none},
			[]string{"no plugin listens on " + none, "--control"}},
		{[]string{"plugin", "sim", "--nodes", "0-x"}, []string{"--nodes 0-x", "such as 0-3"}},
		{[]string{"plugin", "sim", "--dir", none}, []string{"--dir " + none, "start the kubelet"}},
		{[]string{"plugin", "sim", "--registry-dir", none}, []string{"--registry-dir " + none}},
		{[]string{"playground", "--onc"}, []string{"did you mean --once?"}},
		{[]string{"playgrond"}, []string{`"playgrond"`, "numalet --help"}},
	} {
		out, err := run(t, tt.args...)
		if err == nil || out != "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v\n%s", tt.args, err, out)
			continue
		}
		for _, part := range tt.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: the error lacks %q: %v", tt.args, part, err)
			}
		}
	}
}

// The ending of its file's name chooses the format of a report, unless a flag does.
func TestReportIsAsItsFileIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		file, begins string
		args         []string
	}{
		{"x.html", "<!", nil},
		{"x.json", "{", nil},
		{"y.html", "{", []string{"-o", "json"}},
		{"x.dat", "", nil},
	} {
		path := filepath.Join(dir, tt.file)
		out, err := run(t, append([]string{"rig", "--topology-from", "fixture:laptop",
			"--pods", "10", "--policies", "none", "--out", path}, tt.args...)...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", tt.file, err, out)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(raw), tt.begins) {
			t.Errorf("%s begins with %.20q, want %q", tt.file, raw, tt.begins)
		}
	}
}
