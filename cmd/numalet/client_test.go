package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/internal/cli"
	"github.com/numalet/numalet/cmd/internal/cli/clitest"
)

// agentWith starts a server that answers these paths as an agent would.
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

// A pod is named with or without its namespace, the agent by its port, and -o json prints JSON.
func TestExplainFlags(t *testing.T) {
	address := agentWith(t, map[string]string{
		"/debug/admission/shop/web-node": `{"namespace":"shop","name":"web-node"}`,
	})
	for _, args := range [][]string{
		{"shop/web-node"}, {"web-node", "-n", "shop"}, {"shop/web-node", "-n", "shop"}, {"shop/web-node/main"},
		{"web-node/main", "-n", "shop"}, {"shop/web-node", "-c", "main"},
	} {
		out, err := run(t, append([]string{"explain", "--server", address, "-o", "json"}, args...)...)
		if err != nil || !strings.Contains(out, `  "name": "web-node"`) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// An agent's answer is shown without control characters that would rule the user's terminal.
func TestAnswersRuleNoTerminal(t *testing.T) {
	address := agentWith(t, map[string]string{
		"/events": `{"items":[{"metadata":{"name":"a"},"count":1,"type":"Warning",
"reason":"Bad\u001b[2J","involvedObject":{"kind":"Pod","namespace":"n","name":"p\u009b31m"},
"message":"first\nsecond \u001b]0;title\u0007 done"}]}`,
	})
	for _, format := range []string{"text", "json"} {
		out, err := run(t, "events", "--server", address, "-o", format)
		if err != nil || !strings.Contains(out, "title") {
			t.Errorf("%s: %v\n%q", format, err, out)
		}
		if strings.ContainsAny(out, "\x1b\x07\u009b") || strings.Contains(out, `\u001b`) {
			t.Errorf("%s: %q", format, out)
		}
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no \x1b[2J way", http.StatusForbidden)
	}))
	t.Cleanup(refusing.Close)
	if _, err := run(t, "events", "--server", refusing.URL); err == nil ||
		strings.Contains(err.Error(), "\x1b") || !strings.Contains(err.Error(), "way") {
		t.Errorf("a refusal: %q", err)
	}
}

// The shell completes machines, formats and the pods of an agent.
func TestCompletion(t *testing.T) {
	address := agentWith(t, map[string]string{"/pods": `{"items":[
		{"metadata":{"namespace":"default","name":"web-node"}},
		{"metadata":{"namespace":"shop","name":"till-node"}}]}`})
	for typed, want := range map[string]string{
		"topology show --topology-from=fix":  "fixture:epyc-nps4",
		"version -o ":                        "json",
		"explain --server " + address + " t": "shop/till-node",
		"explain --server " + address + " ":  "web-node",
		"comp":                               "completion",
		"play":                               "playground",
	} {
		clitest.Completes(t, newCommand(nil), typed, want)
	}
}

// TestLab: numalet hands on all words of a command of the other program, its flags included. That
// program also prints the command's help and completes it.
func TestLab(t *testing.T) {
	for typed, want := range map[string]string{
		"playground --once -o json":       `lab: ["playground" "--once" "-o" "json"]`,
		"plugin sim ctl state --help":     `lab: ["plugin" "sim" "ctl" "state" "--help"]`,
		"nodes --node n --kubeconfig nay": `lab: ["nodes" "--node" "n" "--kubeconfig" "nay"]`,
		"help rig":                        `lab: ["rig" "--help"]`,
	} {
		out, err := run(t, strings.Fields(typed)...)
		if !strings.Contains(fmt.Sprintln(out, err), want) {
			t.Errorf("%s: %v\n%s", typed, err, out)
		}
	}
	for typed, want := range map[string]bool{
		"__complete playground --topology-from ": true, "__completeNoDesc plugin sim --no": true,
		"__complete plugin si": false, "__complete explain ": false, "playground x ": false,
	} {
		if got := cli.CompletesLab(newCommand(nil), strings.Split(typed, " ")); got != want {
			t.Errorf("%q: completed by the other program: %t", typed, got)
		}
	}
}

func TestHelpFits(t *testing.T) {
	clitest.HelpFits(t, func() *cobra.Command { return newCommand(nil) })
}

// Without flags numalet prints its help and creates nothing.
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

// TestNodeProxy: with --node the API server of the kubeconfig is asked with the kubeconfig's
// credentials, and its error messages are shown in its own words.
func TestNodeProxy(t *testing.T) {
	const proxy = "/prefix/api/v1/nodes/node1/proxy/"
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case proxy + "debug/admission/default/web":
			w.Write([]byte(`{"namespace":"default","name":"web"}`))
		case proxy + "events":
			w.Write([]byte(`{"items":[]}`))
		case proxy + "podresources":
			w.Write([]byte(`{"pod_resources":[{"name":"web","containers":[{"cpu_ids":["3"]}]}]}`))
		case proxy + "podresources/allocatable":
			w.Write([]byte(`{"cpu_ids":["3"],"of later":1}`))
		case proxy + "debug/fit":
			w.Write([]byte(`{"fits":true}`))
		default:
			w.WriteHeader(http.StatusForbidden)
			w.Write([]byte(`{"kind":"Status","message":"you may not"}`))
		}
	}))
	t.Cleanup(s.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": "` + s.URL + `/prefix",
  "insecure-skip-tls-verify": true}}],
"users": [{"name": "u", "user": {"token": "sesame"}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(pod, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"explain", "web"}, {"events"}, {"fit", "-f", pod, "--count", "2"},
		{"podresources"}, {"podresources", "--allocatable"},
	} {
		args = append(args, "--node", "node1", "--kubeconfig", kubeconfig, "-o", "json")
		out, err := run(t, args...)
		if err != nil || args[0] == "podresources" && !strings.Contains(out, `"3"`) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	const by = " Bearer sesame"
	want := []string{
		"GET " + proxy + "debug/admission/default/web" + by, "GET " + proxy + "events" + by,
		"POST " + proxy + "debug/fit?count=2" + by, "GET " + proxy + "podresources" + by,
		"GET " + proxy + "podresources/allocatable" + by,
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	_, err := run(t, "explain", "other", "--node", "node1", "--kubeconfig", kubeconfig)
	if err == nil || !strings.Contains(err.Error(), "node node1 says: you may not") {
		t.Errorf("who may not: %v", err)
	}
	_, err = run(t, "events", "--node", "node1", "--kubeconfig", kubeconfig+".none")
	if err == nil || !strings.Contains(err.Error(), "name a kubeconfig with --kubeconfig") {
		t.Errorf("no kubeconfig: %v", err)
	}
}
