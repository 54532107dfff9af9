package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/test/harness"
)

// TestAsking: an agent is named by its root directory, its socket, its port or the environment, and its pods by the
// names on their manifests. Through the socket all is answered, through the port what is no secret and changes nothing.
func TestAsking(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("app", limited("app", "cpu: 2, memory: 64Mi"))
	n.AwaitPhase("app-node", v1.PodRunning)
	n.Pod("bad", "kind: Pod\n")
	n.Eventually("the manifest is refused", func() error {
		if text := n.Get("/problems"); !strings.Contains(text, "bad.yaml") {
			return fmt.Errorf("problems: %s", text)
		}
		return nil
	})
	socket, port := filepath.Join(n.Root, devices.Socket), strings.TrimSuffix(n.URL("/"), "/")
	for _, c := range []struct{ env, args, want string }{
		{"", "status --root-dir " + n.Root, "health    ok\n"},
		{"", "status --server " + socket, "node      node, numalet v1."},
		{"", "status --server " + port, "problems  1, which numalet problems lists\n"},
		{socket, "pods app", "app-node  main       Running"},
		{port, "pods app/main", "app-node  main       Running"},
		{socket, "problems", "bad.yaml"},
		{socket, "explain app", "Pod default/app-node: admitted"},
		{socket, "explain bad", "There is no pod default/bad: file "},
		{socket, "events app", "pod/app-node"},
		{socket, "logs app --tail 1", "started cpus="},
		{socket, "podresources app", "app-node  main"},
		{port, "podresources app/main -o json", `"name": "main"`},
		{socket, "topology show", "64 CPUs"},
		{socket, "device list", "No device plugin and no driver has told of any device."},
		{socket, "claim list", "No pod of this node uses a resource claim."},
		{socket, "plugin list", "has registered"},
		{port, "logs app", "!/containerLogs/default/app-node/main is not served at a read-only port"},
		{port, "podresources --watch", "!ask there"},
		{socket, "pods --root-dir " + n.Dir + "/none", "!none/numalet.sock"},
	} {
		want, fails := strings.CutPrefix(c.want, "!")
		out, err := asks(t, c.env, strings.Fields(c.args)...)
		if (err != nil) != fails || !strings.Contains(out, want) {
			t.Errorf("%s %s: %v, want %q in\n%s", c.env, c.args, err, want, out)
		}
	}
	if text := n.Get("/"); !strings.Contains(text, "numalet explain POD") || strings.Contains(text, "/run/") {
		t.Errorf("the port lists\n%s", text)
	}
	if text := overSocket(t, socket, http.MethodGet, "/"); !strings.Contains(text, "numalet device cordon") {
		t.Errorf("the socket lists\n%s", text)
	}
	if text := overSocket(t, socket, http.MethodPost, "/run/default/app-node/main?cmd=nosuch"); !strings.Contains(text,
		"nosuch") {
		t.Errorf("a command in a container: %s", text)
	}
	n.RemovePod("app")
	n.AwaitGone("app-node")
	if out, err := asks(t, socket, "explain", "app"); err != nil || !strings.Contains(out, "is gone from the node") ||
		!strings.Contains(out, "Killing") {
		t.Errorf("a pod that is gone: %v\n%s", err, out)
	}
}

// asks runs numalet with an agent in its environment, and returns what it prints.
func asks(t *testing.T, server string, args ...string) (string, error) {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "NUMALET_SERVER="+server, "KUBECONFIG=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// overSocket asks an agent through its socket, as curl does.
func overSocket(t *testing.T, socket, method, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
