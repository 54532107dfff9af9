package test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/numalet/numalet/test/harness"
)

// nodeAPI is the HTTPS server of a node, with the certificate of a client that may use it.
type nodeAPI struct {
	t    *testing.T
	url  string
	ca   string
	cert tls.Certificate
	pem  pair
}

// serveNodeAPI makes the node serve its API to clients with certificates of an authority.
func serveNodeAPI(t *testing.T, n *harness.Node) nodeAPI {
	t.Helper()
	authority := newAuthority(t)
	clientCA := filepath.Join(n.Dir, "clients.crt")
	if err := os.WriteFile(clientCA, authority.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	port := harness.FreePort(t)
	n.Settings["port"] = port
	n.Settings["authentication"] = map[string]any{
		"x509": map[string]any{"clientCAFile": clientCA},
	}
	n.Settings["authorization"] = map[string]any{"mode": "AlwaysAllow"}
	pki := filepath.Join(n.Dir, "pki")
	n.Args = append(n.Args, "--cert-dir="+pki, "--node-ip=127.0.0.1")
	p := authority.client(t, "ann")
	cert, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	return nodeAPI{t, fmt.Sprintf("https://127.0.0.1:%d", port),
		filepath.Join(pki, "kubelet.crt"), cert, p}
}

// client returns a client that has a certificate if it is known.
func (a nodeAPI) client(known bool) *http.Client {
	a.t.Helper()
	text, err := os.ReadFile(a.ca)
	if err != nil {
		a.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	config := &tls.Config{RootCAs: roots}
	if known {
		config.Certificates = []tls.Certificate{a.cert}
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}}
}

func (a nodeAPI) ask(known bool, method, path string) (int, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := a.client(known).Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Each path of the node API answers clients with a certificate, and no others.
func TestNodeAPI(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	api := serveNodeAPI(t, n)
	n.Start()
	n.Pod("web", manifestOf("web", "containers: [{name: main, image: sim.local/app}, "+
		"{name: bad, image: sim.local/missing}]"))
	n.AwaitPhase("web-node", v1.PodPending)
	n.Eventually("main runs", func() error {
		if code, body := api.ask(true, "GET", "/runningpods/"); code != 200 ||
			!strings.Contains(body, `"name": "main"`) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for _, tc := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/healthz", 200, "ok"}, {"GET", "/healthz/ping", 200, "ok"},
		{"GET", "/healthz/syncloop", 200, "ok"}, {"GET", "/healthz/device-plugin", 200, "ok"},
		{"GET", "/healthz/log", 200, "ok"},
		{"GET", "/pods", 200, `"name":"web-node"`},
		{"GET", "/metrics", 200, `kubelet_http_requests_total{long_running="false",method="GET",` +
			`path="runningpods",server_type="readwrite"}`},
		{"GET", "/configz", 200, `"kubeletconfig"`}, {"GET", "/flagz", 200, "root-dir"},
		{"GET", "/statusz", 200, "containerLogs"},
		{"GET", "/containerLogs/default/web-node/main", 200, "started cpus="},
		{"GET", "/containerLogs/default/web-node/bad", 400, "is waiting to start"},
		{"GET", "/containerLogs/default/none/main", 404, `pod "none" does not exist`},
		{"POST", "/run/default/web-node/main?cmd=echo+hi", 200, "hi\n"},
		{"POST", "/exec/default/web-node/main?command=true&output=1", 500,
			"Upgrade request required"},
		{"POST", "/attach/default/none/main?output=1", 404, "pod does not exist"},
		{"POST", "/portForward/default/none", 404, "pod does not exist"},
		{"POST", "/checkpoint/default/web-node/main", 500, "checkpointing of"},
		{"GET", "/debug/pprof/", 200, "goroutine"}, {"PUT", "/debug/flags/v", 400, "invalid"},
		{"GET", "/placements", 200, "web-node"}, {"GET", "/problems", 200, ""},
		{"GET", "/events", 200, "EventList"}, {"GET", "/free", 200, ""},
		{"GET", "/debug/admission/default/web-node", 200, "web-node"},
		{"POST", "/debug/fit", 400, ""}, {"GET", "/debug/shortage", 200, "memory.available"},
		{"GET", "/none", 404, ""}, {"DELETE", "/pods", 405, ""}, {"POST", "/configz", 405, ""},
	} {
		if code, body := api.ask(true, tc.method, tc.path); code != tc.code ||
			!strings.Contains(body, tc.want) {
			t.Errorf("%s %s: %d %.300q, want %d with %q", tc.method, tc.path, code, body, tc.code,
				tc.want)
		}
		if code, body := api.ask(false, tc.method, tc.path); code != 401 || body != "Unauthorized" {
			t.Errorf("%s %s of a stranger: %d %q", tc.method, tc.path, code, body)
		}
	}
}

// exec runs a command in web-node's container main, over SPDY or WebSocket.
func (a nodeAPI) exec(spdy bool, command, input string) (out, errs string, err error) {
	a.t.Helper()
	ca, err := os.ReadFile(a.ca)
	if err != nil {
		a.t.Fatal(err)
	}
	config := &rest.Config{Host: a.url, TLSClientConfig: rest.TLSClientConfig{
		CAData: ca, CertData: a.pem.cert, KeyData: a.pem.key,
	}}
	where := a.url + "/exec/default/web-node/main?" + url.Values{
		"input": {"1"}, "output": {"1"}, "error": {"1"}, "command": {"sh", "-c", command},
	}.Encode()
	to, err := url.Parse(where)
	if err != nil {
		a.t.Fatal(err)
	}
	var e remotecommand.Executor
	if spdy {
		e, err = remotecommand.NewSPDYExecutor(config, http.MethodPost, to)
	} else {
		e, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, where)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	var o, x bytes.Buffer
	err = e.StreamWithContext(a.t.Context(), remotecommand.StreamOptions{
		Stdin: strings.NewReader(input), Stdout: &o, Stderr: &x,
	})
	return o.String(), x.String(), err
}

// Commands run over both protocols, through TLS, and logs are followed until the container ends.
func TestStreams(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	api := serveNodeAPI(t, n)
	n.Start()
	n.Pod("web", manifestOf("web", "containers: [{name: main, image: sim.local/app}]"))
	n.AwaitPhase("web-node", v1.PodRunning)
	for _, spdy := range []bool{true, false} {
		out, errs, err := api.exec(spdy, "cat; echo wrong >&2; exit 3", "in")
		var code utilexec.CodeExitError
		if !errors.As(err, &code) || code.Code != 3 || out != "in" || errs != "wrong\n" {
			t.Errorf("SPDY %v: %q, %q, %v", spdy, out, errs, err)
		}
	}
	followed := make(chan string, 1)
	go func() {
		_, body := api.ask(true, "GET", "/containerLogs/default/web-node/main?follow=true")
		followed <- body
	}()
	select {
	case body := <-followed:
		t.Errorf("a follower of a container that runs ended with %q", body)
	case <-time.After(300 * time.Millisecond):
	}
	n.RemovePod("web")
	if body := <-followed; !strings.Contains(body, "started") || !strings.Contains(body, "exited") {
		t.Errorf("followed %q", body)
	}
}

// With the defaults nobody could be authorized on a standalone node. The port is not served, and
// the log says what to set. The agent runs.
func TestNodeAPIWithoutAPIServer(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["port"] = harness.FreePort(t)
	n.Start()
	if _, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d", n.Settings["port"])); err == nil {
		t.Error("the port is served")
	}
	log := n.LogTail(1000)
	for _, want := range []string{"The node API (port 10250) is not served", "authorization.mode",
		"--kubeconfig"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// The Pods API serves the node's pods with their statuses on a socket.
func TestPodsAPI(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("web", manifestOf("web", "containers: [{name: main, image: sim.local/app}]"))
	n.AwaitPhase("web-node", v1.PodRunning)
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.Root, "pods-api", "pods-api.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var list *podsv1alpha1.ListPodsResponse
	n.Eventually("all sources were heard", func() (err error) {
		list, err = podsv1alpha1.NewPodsClient(conn).ListPods(t.Context(),
			&podsv1alpha1.ListPodsRequest{})
		return err
	})
	if len(list.Pods) != 1 {
		t.Fatalf("%d pods", len(list.Pods))
	}
	var pod v1.Pod
	if err := pod.Unmarshal(list.Pods[0]); err != nil || pod.Name != "web-node" ||
		pod.Status.Phase != v1.PodRunning {
		t.Errorf("%v: %s is %s", err, pod.Name, pod.Status.Phase)
	}
}
