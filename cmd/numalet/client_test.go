package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is left out of an agent's address is filled in.
func TestAgentAddress(t *testing.T) {
	for text, want := range map[string]string{
		"node1":             "http://node1:10255",
		"127.0.0.1:10300":   "http://127.0.0.1:10300",
		"[::1]":             "http://[::1]:10255",
		"http://node1":      "http://node1",
		"https://node1:443": "https://node1:443",
	} {
		var a agentAddress
		if err := a.Set(text); err != nil || a.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, &a, err, want)
		}
	}
	for _, text := range []string{"", "http://", "unix:///a", "a b"} {
		if err := new(agentAddress).Set(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// agentWith is an agent that answers these paths.
func agentWith(t *testing.T, answers map[string]string) (address string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.EscapedPath()]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// A pod is named with or without its namespace, the agent by its port, and programs get JSON.
func TestExplainFlags(t *testing.T) {
	address := agentWith(t, map[string]string{
		"/debug/admission/shop/web-node": `{"namespace":"shop","name":"web-node"}`,
	})
	for _, args := range [][]string{
		{"shop/web-node"}, {"web-node", "-n", "shop"}, {"shop/web-node", "-n", "shop"},
	} {
		out, err := run(t, append([]string{"explain", "--server", address, "-o", "json"}, args...)...)
		if err != nil || !strings.Contains(out, `  "name": "web-node"`) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// The shell completes machines, workloads, policies, formats and the pods of an agent.
func TestCompletion(t *testing.T) {
	address := agentWith(t, map[string]string{"/pods": `{"items":[
		{"metadata":{"namespace":"default","name":"web-node"}},
		{"metadata":{"namespace":"shop","name":"till-node"}}]}`})
	for _, tt := range []struct{ typed, want string }{
		{"topology show --topology-from=fix", "fixture:epyc-nps4"},
		{"playground --topology-from ", "fixture:laptop"},
		{"playground --runtime ", "containerd"},
		{"bench topology --mix ", "training"},
		{"bench topology --policies none/restricted+", "none/restricted+prefer-closest-numa-nodes"},
		{"version -o ", "json"},
		{"explain --server " + address + " ", "web-node"},
		{"explain --server " + address + " ", "shop/till-node"},
		{"comp", "completion"},
	} {
		args := append([]string{"__complete"}, strings.Split(tt.typed, " ")...)
		out, err := run(t, args...)
		if err != nil {
			t.Errorf("%s: %v", tt.typed, err)
		}
		found := false
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			found = found || word == tt.want
		}
		if !found {
			t.Errorf("%s: no %s in\n%s", tt.typed, tt.want, out)
		}
	}
}

// Without any flag numalet says what it is, and makes nothing.
func TestBareCommandHelps(t *testing.T) {
	out, err := run(t)
	if err != nil || !strings.Contains(out, "numalet playground") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestVersionCommand(t *testing.T) {
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "numalet v1.") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, "version", "-o", "json")
	if err != nil || !strings.Contains(out, `"gitVersion": "v1.`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A report is what its file's name says, unless told otherwise.
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
		out, err := run(t, append([]string{"bench", "topology", "--topology-from", "fixture:laptop",
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
