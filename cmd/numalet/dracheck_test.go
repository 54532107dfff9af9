package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/dra/dratest"
	"github.com/numalet/numalet/test/scratch"
)

// A driver is checked by its name or its socket, with claims and slices; wrong flags are reported.
func TestDRACheck(t *testing.T) {
	registry := scratch.Dir(t)
	d := dratest.Start(t, dratest.Config{Registry: registry})
	slices := filepath.Join(t.TempDir(), "slices.yaml")
	text := `{kind: ResourceSliceList, items: [{spec: {driver: gpu.example.com, pool: {name: pool},
  devices: [{name: device-0}]}}]}
---
spec: {driver: other.example.com}
`
	if err := os.WriteFile(slices, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"--dra " + d.Socket, "gpu.example.com: 3 passed, 0 failed"},
		{"--dra gpu.example.com --registry " + registry + " --claim team/a/uid --slices " + slices,
			"FAIL  cdi"},
		{"--dra other.example.com --registry " + registry, "says that it is DRA driver other"},
		{"--dra " + d.Socket + " --claim a", "write NAMESPACE/NAME/UID"},
		{"--dra " + d.Socket + " --slices /nowhere/x", "/nowhere/x"},
		{"--dra " + d.Socket + " --exec true", "without a path"},
		{"--dra gpu.example.com --exec true --patience 1s", "did not register: it ended"},
		{"--dra gpu.example.com --dir /tmp", "--dir is for device plugins"},
		{"--dra " + d.Socket + " --resource a.b/c", "leave them out with --dra"},
		{"--dra " + d.Socket + " -o junit", `<testsuites name="DRA driver gpu.example.com"`},
		{"--dra " + d.Socket + " -o junit", `<testsuite name="gpu.example.com registration"`},
		{"--dra " + d.Socket, "what becomes of claims was not checked: nobody named a claim"},
		{"--dra " + d.Socket + " --only health --claim team/a/uid", "gpu.example.com: 1 passed, 0 failed"},
		{"--dra " + d.Socket + " --only helth", `no check or group of checks "helth"`},
		{"--exec true --claim a/b/c", "name it with --dra"},
	} {
		out, err := run(t, append([]string{"plugin", "check"}, strings.Fields(tc.args)...)...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, tc.want) {
			t.Errorf("%s:\n%s\nwant %q", tc.args, out, tc.want)
		}
		if strings.Contains(tc.args, " --slices "+slices) && !strings.Contains(out, "ok    slices") {
			t.Errorf("slices:\n%s", out)
		}
	}
}
