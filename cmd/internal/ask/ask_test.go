package ask

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
)

// The parts of an agent's address that the user leaves out are filled in; a path is that of its socket.
func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"node1":               "http://node1:10255",
		"127.0.0.1:10300":     "http://127.0.0.1:10300",
		"[::1]":               "http://[::1]:10255",
		"http://node1":        "http://node1",
		"https://node1:443":   "https://node1:443",
		"/root/numalet.sock":  "/root/numalet.sock",
		"unix:/root/a.sock":   "/root/a.sock",
		"unix:///root/a.sock": "/root/a.sock",
	} {
		var a address
		if err := a.Set(text); err != nil || a.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, &a, err, want)
		}
	}
	for _, text := range []string{"", "http://", "ftp://a", "a b"} {
		if err := new(address).Set(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// given returns the agent that these flags name.
func given(t *testing.T, args ...string) *Agent {
	t.Helper()
	var a Agent
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.Add(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &a
}

// TestTarget: a flag counts before the environment, and that before the usual root directory. What names an agent twice
// is refused.
func TestTarget(t *testing.T) {
	for _, c := range []struct{ flags, env, want string }{
		{"", "", "/var/lib/kubelet/numalet.sock"},
		{"", "/play/root/numalet.sock", "/play/root/numalet.sock"},
		{"", "node2:7", "http://node2:7"},
		{"--server node1", "node2:7", "http://node1:10255"},
		{"--root-dir /other", "node2:7", "/other/numalet.sock"},
		{"--root-dir /other --server node1", "", "--server and --root-dir: each names an agent; leave one out"},
		{"--node n --server node1", "", "--node and --server: each names an agent; leave one out"},
		{"--kubeconfig /k", "", "--kubeconfig says how a node is reached: name the node with --node"},
		{"--node n --kubeconfig /nonexistent", "", "--node n: stat /nonexistent: no such file or directory; name a " +
			"kubeconfig with --kubeconfig"},
		{"", "ftp://x", "$NUMALET_SERVER=ftp://x: not the address of an agent"},
	} {
		t.Setenv(Env, c.env)
		a := given(t, strings.Fields(c.flags)...)
		at, err := a.target()
		if got := strings.TrimPrefix(fmt.Sprint(at.String(), err), "<nil>"); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, %q: %s, want %s", c.flags, c.env, got, c.want)
		}
		if root, here := a.Root(); here != strings.HasSuffix(c.want, ".sock") || here && root != filepath.Dir(c.want) {
			t.Errorf("%q, %q: the root directory is %q, %t", c.flags, c.env, root, here)
		}
	}
}

// TestSpare: who may not open the socket asks the usual read-only port, for what changes nothing.
func TestSpare(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`["it"]`))
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	none := address{socket: filepath.Join(t.TempDir(), "none")}.target()
	spare := address{base: u}.target()
	none.spare = &spare
	for body, want := range map[string]bool{"": true, "{}": false} {
		q := Question{Path: []string{"pods"}}
		if body != "" {
			q.Body = []byte(body)
		}
		answer, err := none.open(t.Context(), q)
		if err == nil {
			_ = answer.Close()
		}
		if (err == nil) != want {
			t.Errorf("body %q: %v", body, err)
		}
		if err != nil && !strings.Contains(err.Error(), "name its root directory with --root-dir") {
			t.Errorf("body %q: %v", body, err)
		}
	}
}

// TestRefusals: an error says who refused, and what helps.
func TestRefusals(t *testing.T) {
	port := address{base: &url.URL{Scheme: "http", Host: "node1:10255"}}.target()
	node := target{node: "n1"}
	for _, c := range []struct {
		at   target
		code int
		text string
		want string
	}{
		{port, 404, "404 page not found\n", "/devices/cordon is not served at a read-only port; ask through the agent's"},
		{port, 404, "no pod a/b is known", "the agent at http://node1:10255 says: no pod a/b is known"},
		{node, 403, `{"kind":"Status","message":"you may not"}`, "node n1 says: you may not"},
		{node, 500, `{"kind":"Status","message":"tls: x509: certificate signed by unknown authority"}`,
			"set serverTLSBootstrap: true on the node and approve its CSR"},
	} {
		err := c.at.refusal(Question{Path: []string{"devices", "cordon"}}, c.code, []byte(c.text))
		if !strings.Contains(err.Error(), c.want) || Unknown(err) != (c.code == 404) {
			t.Errorf("%d %s: %v, want %s", c.code, c.text, err, c.want)
		}
	}
}

// A user who may not open the agent's socket is told who may, and not that no agent runs.
func TestSocketOfAnother(t *testing.T) {
	at := address{socket: "/var/lib/kubelet/numalet.sock"}.target()
	for errno, want := range map[syscall.Errno]string{
		syscall.EACCES: "only root and the agent's own user may ask through /var/lib/kubelet/numalet.sock: ask as root",
		syscall.ENOENT: "no such file or directory; start it",
	} {
		err := at.unreached(&url.Error{Op: "Get", URL: "http://localhost/devices", Err: &net.OpError{
			Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", errno)}})
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", errno, err, want)
		}
	}
}
