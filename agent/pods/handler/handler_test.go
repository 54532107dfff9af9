package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	criclient "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"
)

func newTest() *Handlers { return New(Config{Version: "1.37"}) }

// within returns a context with a probe's deadline.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// at returns the target of a server, and its port.
func at(t *testing.T, address string) (Target, int32) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return Target{Container: &v1.Container{Name: "c"}, ID: "id", IP: host}, int32(number)
}

// answer returns the outcome of a probe as "failure: text".
func (h *Handlers) answer(ctx context.Context, p v1.ProbeHandler, t Target) string {
	o, err := h.Probe(ctx, &v1.Probe{ProbeHandler: p, TimeoutSeconds: 1}, t)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(o.Result) + ": " + o.Output
}

// server answers in all the ways that a probe can meet.
func server(t *testing.T) *http.ServeMux {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s host=%s agent=%s accept=%q x=%q", r.Method, r.URL.RequestURI(),
			r.Host, r.UserAgent(), r.Header["Accept"], r.Header["X"])
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "secret")
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("where"), http.StatusFound)
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "late")
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return mux
}

func TestHTTP(t *testing.T) {
	plain := httptest.NewServer(server(t))
	defer plain.Close()
	secure := httptest.NewUnstartedServer(server(t))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	h := newTest()
	for _, s := range []*httptest.Server{plain, secure} {
		u, _ := url.Parse(s.URL)
		target, port := at(t, u.Host)
		get := v1.HTTPGetAction{Port: intstr.FromInt32(port),
			Scheme: v1.URIScheme(strings.ToUpper(u.Scheme))}
		for path, want := range map[string]string{
			"/ok?a=b": "success: GET /ok?a=b host=" + u.Host +
				` agent=kube-probe/1.37 accept=["*/*"] x=[]`,
			"ok": "success: GET /ok host=" + u.Host +
				` agent=kube-probe/1.37 accept=["*/*"] x=[]`,
			"/status/204":           "success: ",
			"/status/399":           "warning: Probe terminated redirects, Response body: secret",
			"/status/404":           "failure: HTTP probe failed with statuscode: 404",
			"/status/503":           "failure: HTTP probe failed with statuscode: 503",
			"/early":                "success: late",
			"/to?where=/status/404": "failure: HTTP probe failed with statuscode: 404",
			"/to?where=http://elsewhere.example/": "warning: Probe terminated redirects, " +
				"Response body: <a href=\"http://elsewhere.example/\">Found</a>.\n\n",
		} {
			get := get
			get.Path = path
			if got := h.answer(within(t, time.Minute), v1.ProbeHandler{HTTPGet: &get}, target); got != want {
				t.Errorf("%s %s: %q, want %q", u.Scheme, path, got, want)
			}
		}
		mine := get
		mine.Path, mine.HTTPHeaders = "/ok", []v1.HTTPHeader{{Name: "host", Value: "me.example"},
			{Name: "user-agent", Value: "me"}, {Name: "accept", Value: ""}, {Name: "X", Value: "1"},
			{Name: "x", Value: "2"}}
		want := `success: GET /ok host=me.example agent=me accept=[] x=["1" "2"]`
		if got := h.answer(within(t, time.Minute), v1.ProbeHandler{HTTPGet: &mine}, target); got != want {
			t.Errorf("%s with headers: %q, want %q", u.Scheme, got, want)
		}
	}
}

// A server that answers without end, too slowly or not at all costs only the probe's timeout.
func TestHTTPBounds(t *testing.T) {
	s := httptest.NewServer(server(t))
	defer s.Close()
	u, _ := url.Parse(s.URL)
	target, port := at(t, u.Host)
	h := newTest()
	ask := func(ctx context.Context, path string) string {
		return h.answer(ctx, v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(port)}}, target)
	}
	if got := ask(within(t, time.Minute), "/endless"); len(got) != maxOutput+len("success: ") {
		t.Errorf("%d bytes of an endless answer", len(got))
	}
	want := fmt.Sprintf("failure: Get %q: context deadline exceeded "+
		"(Client.Timeout exceeded while awaiting headers)", s.URL+"/silent")
	got := ask(within(t, 50*time.Millisecond), "/silent")
	// On a busy machine the connection's deadline comes first, and net/http says so.
	if cut := strings.Replace(want, "context deadline exceeded", "i/o timeout", 1); got != want &&
		!strings.HasSuffix(got, cut[strings.Index(cut, "i/o timeout"):]) {
		t.Errorf("silent: %q, want %q", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if got := ask(ctx, "/silent"); !strings.Contains(got, "context canceled") {
		t.Errorf("broken off: %q", got)
	}
	if got, want := ask(within(t, time.Minute), "/cut"), fmt.Sprintf("failure: Get %q: EOF",
		s.URL+"/cut"); got != want {
		t.Errorf("cut: %q, want %q", got, want)
	}
	hops := 0
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hops++
		http.Redirect(w, r, "/again", http.StatusFound)
	})
	got = ask(within(t, time.Minute), "/")
	if !strings.HasSuffix(got, "stopped after 10 redirects") ||
		hops != maxRedirects {
		t.Errorf("redirects without end: %q after %d", got, hops)
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target, port := at(t, l.Addr().String())
	target.Container.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: port}}
	h := newTest()
	ask := func(host string, port intstr.IntOrString) string {
		return h.answer(within(t, time.Minute), v1.ProbeHandler{
			TCPSocket: &v1.TCPSocketAction{Host: host, Port: port}}, target)
	}
	ports := []intstr.IntOrString{intstr.FromInt32(port), intstr.FromString("web"),
		intstr.FromString(strconv.Itoa(int(port)))}
	for _, p := range ports {
		if got := ask("", p); got != "success: " {
			t.Errorf("port %v: %q", p.String(), got)
		}
	}
	if got := ask("localhost", intstr.FromString("web")); got != "success: " {
		t.Errorf("by host: %q", got)
	}
	for _, p := range []intstr.IntOrString{intstr.FromString("db"), intstr.FromInt32(0)} {
		if got := ask("", p); !strings.HasPrefix(got, "error: port ") {
			t.Errorf("port %v: %q", p.String(), got)
		}
	}
	l.Close()
	if got := ask("", ports[0]); !strings.HasPrefix(got, "failure: dial tcp 127.0.0.1:") ||
		!strings.HasSuffix(got, "connection refused") {
		t.Errorf("closed: %q", got)
	}
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target, port := at(t, l.Addr().String())
	s, state := grpc.NewServer(), health.NewServer()
	healthv1.RegisterHealthServer(s, state)
	state.SetServingStatus("sick", healthv1.HealthCheckResponse_NOT_SERVING)
	go func() { _ = s.Serve(l) }()
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	without := grpc.NewServer()
	go func() { _ = without.Serve(bare) }()
	defer without.Stop()
	_, barePort := at(t, bare.Addr().String())
	h := newTest()
	ask := func(port int32, service string) string {
		return h.answer(within(t, time.Second), v1.ProbeHandler{GRPC: &v1.GRPCAction{
			Port: port, Service: &service}}, target)
	}
	for service, want := range map[string]string{
		"":     "success: service healthy",
		"sick": `failure: service unhealthy (responded with "NOT_SERVING")`,
		"none": "failure: error: health rpc probe failed: rpc error: code = NotFound " +
			"desc = unknown service",
	} {
		if got := ask(port, service); got != want {
			t.Errorf("service %q: %q, want %q", service, got, want)
		}
	}
	if got := ask(barePort, ""); !strings.HasPrefix(got,
		"failure: error: this server does not implement the grpc health protocol") {
		t.Errorf("no health: %q", got)
	}
	s.Stop()
	if got := ask(port, ""); !strings.HasPrefix(got,
		"failure: timeout: failed to connect service \"127.0.0.1:") {
		t.Errorf("closed: %q", got)
	}
}

// runtime answers commands.
type runtime func(id string, command []string, timeout time.Duration) (string, string, error)

func (r runtime) ExecSync(_ context.Context, id string, command []string, timeout time.Duration) (
	[]byte, []byte, error) {
	out, errs, err := r(id, command, timeout)
	return []byte(out), []byte(errs), err
}

func TestExec(t *testing.T) {
	exit := utilexec.CodeExitError{Err: errors.New("exited with 2"), Code: 2}
	for _, tc := range []struct {
		out, errs string
		err       error
		want      string
	}{
		{"fine\n", "", nil, "success: fine\n"},
		{"some", "what is wrong", exit, "failure: somewhat is wrong"},
		{"", "", fmt.Errorf("%w: slow", criclient.ErrCommandTimedOut),
			"failure: command timed out: slow"},
		{"", "", errors.New("no such container"), "error: no such container"},
		{strings.Repeat("o", maxOutput-1), "ee", nil,
			"success: " + strings.Repeat("o", maxOutput-1) + "e"},
	} {
		h := New(Config{Runtime: runtime(func(id string, words []string, within time.Duration) (
			string, string, error) {
			if got := strings.Join(words, " "); id != "id" || got != "check 7 $(OTHER)" ||
				within != time.Second {
				t.Errorf("command %q in %s within %v", got, id, within)
			}
			return tc.out, tc.errs, tc.err
		})})
		c := &v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "N", Value: "7"}}}
		got := h.answer(t.Context(), v1.ProbeHandler{Exec: &v1.ExecAction{
			Command: []string{"check", "$(N)", "$(OTHER)"}}}, Target{Container: c, ID: "id"})
		if got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	got := newTest().answer(t.Context(), v1.ProbeHandler{}, Target{
		Container: &v1.Container{Name: "c"}})
	if !strings.HasPrefix(got, "error: the probe of container c") {
		t.Errorf("no handler: %q", got)
	}
}

// BenchmarkHTTP is one probe of a server on the same machine, including the server's work.
func BenchmarkHTTP(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	u, _ := url.Parse(s.URL)
	port, _ := strconv.Atoi(u.Port())
	h := newTest()
	t := Target{Container: &v1.Container{Name: "c"}, IP: u.Hostname()}
	p := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "/", Port: intstr.FromInt32(int32(port))}}}
	for _, way := range []struct {
		name string
		by   http.RoundTripper
	}{{"own", h.plain}, {"transport", h.secure}} {
		b.Run(way.name, func(b *testing.B) {
			h := *h
			h.plain = way.by
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithTimeout(b.Context(), time.Second)
				if o, err := h.Probe(ctx, p, t); err != nil || o.Result != Success {
					b.Fatal(o, err)
				}
				cancel()
			}
		})
	}
}
