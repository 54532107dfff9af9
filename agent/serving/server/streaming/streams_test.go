package streaming

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// node serves the streams of a simulated runtime with one pod, ns/p, that runs the container c.
type node struct {
	*httptest.Server
	runtime *cri.Client
}

func newNode(t *testing.T, idle time.Duration) node {
	t.Helper()
	client := simtest.Connect(t, simtest.Start(t, crisim.Config{Images: []string{"sim.local/a"}}))
	labels := map[string]string{
		cri.LabelPodUID: "u", cri.LabelPodName: "p", cri.LabelPodNamespace: "ns",
		cri.LabelContainerName: "c",
	}
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"},
		Labels:   labels,
	}
	in, err := client.Runtime().RunPodSandbox(t.Context(), sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := client.Runtime().CreateContainer(t.Context(), in, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Labels: labels,
		Image: &runtimeapi.ImageSpec{Image: "sim.local/a"},
	}, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Runtime().StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	routes, err := Routes(Config{
		Runtime: client.Runtime(), Idle: idle,
		Pod: func(namespace, name string, uid types.UID) (*v1.Pod, bool) {
			pod := podtest.New("ns/p", podtest.UID("u"))
			return pod, namespace == "ns" && name == "p" && (uid == "" || uid == "u")
		},
		Observed: func(uid types.UID) (cri.Pod, bool) {
			pod, err := client.Pod(t.Context(), uid)
			return pod, err == nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return node{s, client}
}

func (n node) at(t *testing.T, path string, query url.Values) *url.URL {
	t.Helper()
	u, err := url.Parse(n.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = query.Encode()
	return u
}

// executors are the protocols of clients.
var executors = map[string]func(*url.URL) (remotecommand.Executor, error){
	"SPDY": func(u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, http.MethodPost, u)
	},
	"WebSocket v5": func(u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(&rest.Config{Host: u.Host}, http.MethodGet,
			u.String())
	},
	"WebSocket v4": func(u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{Host: u.Host},
			http.MethodGet, u.String(), "v4.channel.k8s.io")
	},
}

func commandQuery(command ...string) url.Values {
	return url.Values{"command": command, "input": {"1"}, "output": {"1"}, "error": {"1"}}
}

// TestExec: input, both outputs and the exit code arrive, also with a UID in the path.
func TestExec(t *testing.T) {
	n := newNode(t, time.Minute)
	for name, executor := range executors {
		for _, path := range []string{"/exec/ns/p/c", "/exec/ns/p/u/c"} {
			input := "in"
			if name == "WebSocket v4" {
				input = "" // that protocol cannot signal its end
			}
			command := "cat; echo wrong >&2; exit 3"
			if input == "" {
				command = "echo in; echo wrong >&2; exit 3"
			}
			e, err := executor(n.at(t, path, commandQuery("sh", "-c", command)))
			if err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{
				Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs,
			})
			var code utilexec.CodeExitError
			if !errors.As(err, &code) || code.Code != 3 ||
				strings.TrimSpace(out.String()) != "in" || errs.String() != "wrong\n" {
				t.Errorf("%s %s: %v, %q and %q", name, path, err, out.String(), errs.String())
			}
		}
	}
}

// sizes is a terminal that reports each size in left once and then ends.
type sizes struct{ left []remotecommand.TerminalSize }

func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(s.left) == 0 {
		return nil
	}
	next := s.left[0]
	s.left = s.left[1:]
	return &next
}

// The terminal's size reaches the command.
func TestTerminal(t *testing.T) {
	n := newNode(t, 0)
	query := url.Values{"command": {"size"}, "input": {"1"}, "output": {"1"}, "tty": {"1"}}
	for name, executor := range executors {
		e, err := executor(n.at(t, "/exec/ns/p/c", query))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		in, typing := io.Pipe()
		screen, out := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{
				Stdin: in, Stdout: out, Tty: true,
				TerminalSizeQueue: &sizes{[]remotecommand.TerminalSize{{Width: 80, Height: 24}}},
			})
			_ = out.Close()
		}()
		text := make([]byte, len("80x24\n"))
		if _, err := io.ReadFull(screen, text); err != nil || string(text) != "80x24\n" {
			t.Errorf("%s: %v %q", name, err, text)
		}
		_ = typing.Close()
		cancel()
		<-done
	}
}

func TestAttach(t *testing.T) {
	n := newNode(t, time.Minute)
	for name, executor := range executors {
		if name == "WebSocket v4" {
			continue // it cannot signal the end of the input
		}
		e, err := executor(n.at(t, "/attach/ns/p/c", url.Values{"input": {"1"}, "output": {"1"}}))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader("echo"), Stdout: &out,
		})
		if err != nil || out.String() != "echo" {
			t.Errorf("%s: %v %q", name, err, out.String())
		}
	}
}

// TestPortForward: over SPDY, and over SPDY in a WebSocket.
func TestPortForward(t *testing.T) {
	n := newNode(t, time.Minute)
	u := n.at(t, "/portForward/ns/p", nil)
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: u.Host})
	if err != nil {
		t.Fatal(err)
	}
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(u, &rest.Config{Host: u.Host})
	if err != nil {
		t.Fatal(err)
	}
	for name, dial := range map[string]func() (io.Closer, func(map[string]string) (
		io.ReadWriteCloser, error), error){
		"SPDY": func() (io.Closer, func(map[string]string) (io.ReadWriteCloser, error), error) {
			c, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport},
				http.MethodPost, u).Dial("portforward.k8s.io")
			return c, func(h map[string]string) (io.ReadWriteCloser, error) {
				return c.CreateStream(headers(h))
			}, err
		},
		"WebSocket": func() (io.Closer, func(map[string]string) (io.ReadWriteCloser, error),
			error) {
			c, _, err := overWebSocket.Dial("portforward.k8s.io")
			return c, func(h map[string]string) (io.ReadWriteCloser, error) {
				return c.CreateStream(headers(h))
			}, err
		},
	} {
		conn, open, err := dial()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := forward(open); err != nil || got != "port 8080\nhello" {
			t.Errorf("%s: %v %q", name, err, got)
		}
		_ = conn.Close()
	}
}

func headers(h map[string]string) http.Header {
	out := http.Header{}
	for k, v := range h {
		out.Set(k, v)
	}
	return out
}

// forward sends "hello" to port 8080 and returns the answer.
func forward(open func(map[string]string) (io.ReadWriteCloser, error)) (string, error) {
	header := map[string]string{"port": "8080", "requestID": "0", "streamType": "error"}
	failed, err := open(header)
	if err != nil {
		return "", err
	}
	_ = failed.Close() // it carries nothing in this direction
	header["streamType"] = "data"
	data, err := open(header)
	if err != nil {
		return "", err
	}
	if _, err := io.WriteString(data, "hello"); err != nil {
		return "", err
	}
	text := make([]byte, len("port 8080\nhello"))
	if _, err := io.ReadFull(data, text); err != nil {
		return "", fmt.Errorf("after %q: %w", text, err)
	}
	return string(text), data.Close()
}

// TestRun: the output of a command, and every reason why there is none.
func TestRun(t *testing.T) {
	n := newNode(t, time.Minute)
	for _, tc := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"POST", "/run/ns/p/c?cmd=echo+hi", 200, "hi\n"},
		{"POST", "/run/ns/p/u/c?cmd=echo+hi", 200, "hi\n"},
		{"GET", "/run/ns/p/c?cmd=echo+hi", 405, "Method Not Allowed\n"},
		{"POST", "/run/ns/p/c?cmd=false", 500, "command 'false' exited with 1: "},
		{"POST", "/run/ns/q/c?cmd=echo+hi", 404, "pod does not exist"},
		{"POST", "/run/ns/p/x/c?cmd=echo+hi", 404, "pod does not exist"},
		{"POST", "/run/ns/p/d?cmd=echo+hi", 500, `container not found ("d")`},
		{"POST", "/exec/ns/p/c?command=echo&output=1", 500, "Upgrade request required"},
		{"GET", "/exec/ns/p/c?command=echo", 400,
			"you must specify at least 1 of stdin, stdout, stderr"},
		{"POST", "/exec/ns/q/c?command=echo&output=1", 404, "pod does not exist"},
		{"POST", "/exec/ns/p/d?command=echo&output=1", 500, `container not found ("d")`},
		{"POST", "/attach/ns/p/c?output=1", 500, "Upgrade request required"},
		{"POST", "/attach/ns/p/c", 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"POST", "/portForward/ns/p", 500, "Upgrade request required"},
		{"POST", "/portForward/ns/q", 404, "pod does not exist"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, n.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != tc.code || !strings.Contains(string(body), tc.body) {
			t.Errorf("%s %s: %d %q %v, want %d %q", tc.method, tc.path, resp.StatusCode, body, err,
				tc.code, tc.body)
		}
	}
}

// An idle stream is closed. SPDY's pings count as traffic, so the client sends none.
func TestIdle(t *testing.T) {
	n := newNode(t, 200*time.Millisecond)
	e, err := remotecommand.NewWebSocketExecutorForProtocols(
		&rest.Config{Host: n.Listener.Addr().String()}, http.MethodGet,
		n.at(t, "/exec/ns/p/c", url.Values{"command": {"sleep", "600"}, "output": {"1"}}).String(),
		"v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || ctx.Err() != nil {
		t.Errorf("the idle stream ended with %v, %v", err, ctx.Err())
	}
}
