package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// checked runs "numalet plugin check" with its own simulated plugin, which gets the arguments in
// plugin, and returns the output and exit code.
func checked(t *testing.T, plugin string, args ...string) (out string, code int) {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"plugin", "check", "--topology-from=fixture:playground", "--exec",
		fmt.Sprintf("'%s' plugin sim --resource %s %s", binary, gpu, plugin),
	}, args...)
	raw, err := exec.CommandContext(t.Context(), binary, args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(raw) + string(exit.Stderr), exit.ExitCode()
	}
	return string(raw), 0
}

// The simulated plugin passes all checks, whichever way it registers. Its control socket serves as
// the levers.
func TestPluginCheckOfGoodPlugin(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"--dir {dir}", "--dir {dir} --registry-dir {registry}"} {
		dir := scratch.Dir(t)
		control := filepath.Join(dir, "ctl")
		ctl := fmt.Sprintf("'%s' plugin sim ctl --control %s ", binary, control)
		out, code := checked(t, way+" --nodes 0-3 --pre-start --control "+control,
			"--lever", "sicken="+ctl+"unhealthy gpu-3", "--lever", "cure="+ctl+"healthy gpu-3",
			"--lever", "vanish="+ctl+"remove gpu-7", "--lever", "return="+ctl+"add gpu-7",
			"-o", "json", "--out", filepath.Join(dir, "report.json"),
			"--transcript", filepath.Join(dir, "calls.txt"))
		if code != 0 || !strings.Contains(out, "0 failed, 0 with warnings") {
			t.Errorf("%s: exit code %d\n%s", way, code, out)
		}
		var report check.Report
		raw, err := os.ReadFile(filepath.Join(dir, "report.json"))
		if err == nil {
			err = json.Unmarshal(raw, &report)
		}
		if err != nil || report.Resource != gpu || report.Devices != 8 {
			t.Errorf("%s: %v; the report is of %q", way, err, report.Resource)
		}
		calls, err := os.ReadFile(filepath.Join(dir, "calls.txt"))
		if err != nil || !strings.Contains(string(calls), "ListAndWatch {devices:{") {
			t.Errorf("%s: %v; the transcript is\n%s", way, err, calls)
		}
	}
}

// An agent lists its plugins with the calls that it made.
func TestPluginList(t *testing.T) {
	s := newSite(t)
	s.Start()
	s.Plugin(gpu, "--devices=8")
	s.want(user)
	s.runs(user)
	var peers []devicemanager.Peer
	if err := json.Unmarshal([]byte(s.Get("/plugins")), &peers); err != nil {
		t.Fatal(err)
	}
	if len(peers) != 1 || peers[0].Resource != gpu || peers[0].Healthy != 8 ||
		filepath.Base(peers[0].Endpoint) != "example.com_gpu.sock" ||
		peers[0].Way != devicemanager.ByRegister || peers[0].LastError != "" ||
		peers[0].Calls["Allocate"].All == 0 {
		t.Errorf("the plugins are %+v", peers)
	}
}

// The exit code tells a plugin that fails from one that cannot be checked.
func TestPluginCheckExitCodes(t *testing.T) {
	t.Parallel()
	out, code := checked(t, "--dir {dir} --nodes 9")
	if code != 1 || !strings.Contains(out, "FAIL  numa-nodes") ||
		!strings.Contains(out, "1 failed (numa-nodes)") || !strings.Contains(out, "--topology-from") {
		t.Errorf("with a node that is not there: exit code %d\n%s", code, out)
	}
	out, code = checked(t, "--dir {dir} --devices 0")
	if code != 2 || !strings.Contains(out, "what becomes of devices was not checked: it needs 1 healthy") {
		t.Errorf("without devices: exit code %d\n%s", code, out)
	}
	const odd = "--dir {dir} --device-path /dev/null:/dev/null:rwx"
	for strict, want := range map[string]int{"--strict=false": 0, "--strict": 1} {
		if out, code = checked(t, odd, "--only", "answer", strict); code != want ||
			!strings.Contains(out, "1 with warnings (answer)") {
			t.Errorf("a warning and %s: exit code %d\n%s", strict, code, out)
		}
		if strings.Contains(out, "Device plugin answered Allocate") {
			t.Errorf("the device manager's log is in the report:\n%s", out)
		}
	}
	for _, tc := range []struct {
		plugin string
		args   []string
		want   string
	}{
		{"--dir /nowhere", nil, "the plugin was started and did not register: it ended (exit"},
		{"--dir {dir}", []string{"--lever", "bend=true"}, "NAME is one of [sicken cure vanish"},
		{"--dir {dir}", []string{"--dir", "/tmp"}, "use --exec to start a plugin in a directory"},
	} {
		out, code := checked(t, tc.plugin, tc.args...)
		if code != 2 || !strings.Contains(out, tc.want) {
			t.Errorf("%s %q: exit code %d, want %q in\n%s", tc.plugin, tc.args, code, tc.want, out)
		}
	}
}
