package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The last lines of a container in a crash loop are shown if this host has its log. Else the output
// says that the log is not read.
func TestExplainShowsLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "4.log")
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "2026-01-01T00:00:00.000000000Z stderr F line %d\x1b[2J\n", i)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	empty, link := filepath.Join(filepath.Dir(path), "0.log"), filepath.Join(filepath.Dir(path), "link")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	address := agentWith(t, map[string]string{"/debug/admission/default/web": fmt.Sprintf(`{
		"outcome": "Admit", "since": ["Container main: it exited with 3"], "logs": [
		{"container": "main", "path": %q}, {"container": "silent", "path": %q},
		{"container": "linked", "path": %q}]}`, path, empty, link)})
	out, err := run(t, "explain", "--server", address, "web")
	for _, want := range []string{"it exited with 3", "The last that container main has written\n  line 2995",
		"line 2999", "Container silent has written nothing", "The log of container linked is not read here"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: no %q in\n%s", err, want, out)
		}
	}
	if strings.Contains(out, "line 2994") || strings.Contains(out, "\x1b") {
		t.Errorf("more than the last lines, or what a terminal would do, in\n%s", out)
	}
}

// TestExplainNode: without a pod, or with the node's name, it says what the node is short of, and its
// problems.
func TestExplainNode(t *testing.T) {
	address := agentWith(t, map[string]string{"/debug/shortage": `{
		"node": "n1", "at": "2026-01-01T00:00:09Z", "levels": [{"signal": "memory.available",
		"available": "85Mi", "threshold": "100Mi", "since": "2026-01-01T00:00:00Z"}],
		"of": "memory.available", "next": [{"pod": "shop/web", "why": "uses 300Mi"}],
		"driverCPUs": "8-15"}`, "/problems": `[{"Source": "csi", "Name": "volume", "Reason": "FailedUnMount",
		"Message": "volume 7 cannot be unstaged"}` + strings.Repeat(`, {"Source": "file"}`, 30) + `]`})
	for _, args := range [][]string{{}, {"n1"}} {
		out, err := run(t, append([]string{"explain", "--server", address}, args...)...)
		for _, want := range []string{"Node n1 is short: memory.available\n", "met for 9s",
			"  1. shop/web: uses 300Mi", "Drivers of resource claims hand out CPUs 8-15 (--dra-cpus)",
			"Problems\n  csi volume: FailedUnMount: volume 7 cannot be unstaged\n",
			"and 11 more, which numalet problems lists"} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%q: %v: no %q in\n%s", args, err, want, out)
			}
		}
	}
	if out, err := run(t, "explain", "--server", address, "-o", "json"); err != nil ||
		!strings.Contains(out, `"available": "85Mi"`) || !strings.Contains(out, "volume 7 cannot") {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	if out, err := run(t, "explain", "--server", address, "web"); err == nil || strings.Contains(out, "n1") {
		t.Errorf("a pod that is not there: %v\n%s", err, out)
	}
}
