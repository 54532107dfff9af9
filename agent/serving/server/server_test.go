package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/internal/version"
)

const anyPort = "127.0.0.1:0"

// start runs a server until the test ends or stop is called; both wait for it.
func start(t *testing.T, c Config) (s *Server, stop func()) {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func request(t *testing.T, method string, addr net.Addr, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestPorts(t *testing.T) {
	var sick atomic.Bool
	registry := NewRegistry()
	running := metrics.NewGauge(&metrics.GaugeOpts{Name: "kubelet_mirror_pods", Help: "test"})
	registry.MustRegister(running)
	running.Set(3)
	text := func(method, pattern, text string) route.Route {
		return route.Route{Method: method, Pattern: pattern, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })}
	}
	s, _ := start(t, Config{
		Checks: []healthz.HealthChecker{healthz.NamedCheck("syncloop", func(*http.Request) error {
			if sick.Load() {
				return errors.New("no sync since noon")
			}
			return nil
		})},
		Listeners: []Listener{{Address: anyPort}, {Address: anyPort, Routes: []route.Route{
			PodsRoute(func() []*v1.Pod {
				return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}}
			}),
			MetricsRoute(registry),
			route.JSON("/more", func() any { return []string{"and more"} }),
			text("POST", "/ask", "answer"),
			text("GET", "/both", "got"), text("POST", "/both", "taken"),
			route.Disabled("/off/", "switched off"),
		}}},
	})
	health, readOnly := s.Addrs()[0], s.Addrs()[1]
	for _, tc := range []struct {
		method string
		addr   net.Addr
		path   string
		code   int
		body   string // part of the answer
	}{
		{"GET", health, "/healthz", 200, "ok"},
		{"HEAD", health, "/healthz", 200, ""},
		{"GET", health, "/healthz/ping", 200, "ok"},
		{"GET", health, "/healthz/log", 200, "ok"},
		{"GET", health, "/healthz/syncloop", 200, "ok"},
		{"GET", health, "/healthz?verbose", 200, "[+]syncloop ok"},
		{"GET", health, "/healthz/other", 404, ""},
		{"POST", health, "/healthz", 405, "Method Not Allowed"},
		{"GET", health, "/pods", 404, ""},
		{"GET", readOnly, "/healthz", 200, "ok"},
		{"GET", readOnly, "/pods", 200, `"name":"a"`},
		{"DELETE", readOnly, "/pods", 405, "Method Not Allowed"},
		{"GET", readOnly, "/metrics", 200, "kubelet_mirror_pods 3"},
		{"GET", readOnly, "/metrics", 200, "\nkubernetes_build_info{"},
		{"GET", readOnly, "/metrics", 200, `,git_version="` + version.Get().String() + `",`},
		{"GET", readOnly, "/metrics", 200, "\ngo_goroutines "},
		{"GET", readOnly, "/metrics", 200, "\nprocess_start_time_seconds "},
		{"GET", readOnly, "/more", 200, "and more"},
		{"PUT", readOnly, "/more", 405, ""},
		{"POST", readOnly, "/ask", 200, "answer"},
		{"GET", readOnly, "/ask", 405, ""},
		{"POST", health, "/ask", 404, ""},
		{"BREW", readOnly, "/none", 404, ""},
		{"GET", readOnly, "/pods/", 200, `"kind":"PodList"`},
		{"GET", readOnly, "/pods/x", 404, ""},
		{"GET", readOnly, "/more/", 404, ""},
		{"GET", readOnly, "/both", 200, "got"},
		{"POST", readOnly, "/both", 200, "taken"},
		{"GET", readOnly, "/off/x", 405, "switched off"},
		{"BREW", readOnly, "/off/", 405, "switched off"},
	} {
		code, body := request(t, tc.method, tc.addr, tc.path)
		if code != tc.code || !strings.Contains(body, tc.body) {
			t.Errorf("%s %s: %d %.200q, want %d with %q", tc.method, tc.path, code, body,
				tc.code, tc.body)
		}
	}
	sick.Store(true)
	for _, addr := range []net.Addr{health, readOnly} {
		if code, body := request(t, "GET", addr, "/healthz"); code != 500 ||
			!strings.Contains(body, "[-]syncloop failed") {
			t.Errorf("sick: %d %q", code, body)
		}
	}
}

func TestPodListOfNothing(t *testing.T) {
	none := PodsRoute(func() []*v1.Pod { return nil })
	s, _ := start(t, Config{Listeners: []Listener{{Address: anyPort, Routes: []route.Route{none}}}})
	_, body := request(t, "GET", s.Addrs()[0], "/pods")
	var list map[string]any
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	items, ok := list["items"].([]any)
	if list["kind"] != "PodList" || list["apiVersion"] != "v1" || !ok || len(items) != 0 {
		t.Errorf("GET /pods = %s", body)
	}
}

func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	_, err = New(Config{Listeners: []Listener{
		{Address: anyPort}, {Address: addr, Settings: "readOnlyPort (--read-only-port)"},
	}})
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.HasSuffix(err.Error(),
		": stop what uses it, or change readOnlyPort (--read-only-port)") {
		t.Errorf("New: %v", err)
	}
}

// New waits for an address whose holder is ending.
func TestAddressSoonFree(t *testing.T) {
	taken, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	ends := time.AfterFunc(500*time.Millisecond, func() { _ = taken.Close() })
	defer ends.Stop()
	s, err := New(Config{Listeners: []Listener{{Address: taken.Addr().String()}}})
	if err != nil {
		t.Fatal(err)
	}
	s.close()
}

func TestTwoHandlers(t *testing.T) {
	_, err := New(Config{Listeners: []Listener{{Address: anyPort, Routes: []route.Route{
		route.JSON("/healthz", func() any { return nil }),
	}}}})
	if err == nil || err.Error() != "serve GET /healthz: two handlers" {
		t.Errorf("New: %v", err)
	}
}

// certificate returns a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestTLSAndAuthorize: a listener with certificates answers, health checks included, only clients
// with the right token, beside a plain one that answers everybody. HTTP/2 works even without the
// cipher that it requires.
func TestTLSAndAuthorize(t *testing.T) {
	cert, pool := certificate(t)
	s, _ := start(t, Config{Listeners: []Listener{{
		Address: anyPort,
		TLS: &tls.Config{
			Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"},
			CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
				tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384},
		},
		Authorize: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer sesame" {
					http.Error(w, "Unauthorized", http.StatusUnauthorized)
					return
				}
				next.ServeHTTP(w, r)
			})
		},
		Routes: []route.Route{route.JSON("/secret", func() any { return "treasure" })},
	}, {Address: anyPort}}})
	secure := s.Addrs()[0].String()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS12},
		DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}
	for _, tc := range []struct {
		path, token string
		code        int
	}{
		{"/secret", "Bearer sesame", 200}, {"/healthz", "Bearer sesame", 200},
		{"/secret", "", 401}, {"/healthz", "", 401}, {"/none", "Bearer simsim", 401},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+secure+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", tc.token)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.code || resp.ProtoMajor != 2 {
			t.Errorf("GET %s with %q: %s %d, want %d", tc.path, tc.token, resp.Proto,
				resp.StatusCode, tc.code)
		}
	}
	if code, _ := request(t, "GET", s.Addrs()[0], "/secret"); code != 400 {
		t.Errorf("plain HTTP on the listener with certificates: %d, want 400", code)
	}
	if code, _ := request(t, "GET", s.Addrs()[1], "/healthz"); code != 200 {
		t.Errorf("the plain listener beside it: %d", code)
	}
}

// TestShutdown: a running request is still answered when the agent stops; a new one is not.
func TestShutdown(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, stop := start(t, Config{Listeners: []Listener{{Address: anyPort, Routes: []route.Route{
		{Method: "GET", Pattern: "/slow", Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-r.Context().Done() // the agent is stopping
				<-leave
				io.WriteString(w, "done")
			})},
	}}}})
	addr := s.Addrs()[0]
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + addr.String() + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- string(body)
	}()
	<-entered
	close(leave)
	stop()
	if got := <-answer; got != "done" {
		t.Errorf("request under way got %q", got)
	}
	if conn, err := net.Dial("tcp", addr.String()); err == nil {
		conn.Close()
		t.Error("still listening after Run returned")
	}
}

func TestLogCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogCheck()
		block := make(chan struct{})
		l.flush = func() { <-block }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.run(ctx) }()

		time.Sleep(flushEvery)
		if err := l.check(nil); err != nil {
			t.Errorf("after a minute: %v", err)
		}
		time.Sleep(blocked)
		if err := l.check(nil); err == nil {
			t.Error("a blocked log is healthy")
		}
		close(block)
		time.Sleep(flushEvery)
		if err := l.check(nil); err != nil {
			t.Errorf("after it came back: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Addrs returns the addresses of the listeners, in order.
func (s *Server) Addrs() []net.Addr {
	var out []net.Addr
	for _, e := range s.endpoints {
		out = append(out, e.listener.Addr())
	}
	return out
}

// A handler that may take long is not cut off by the limits of others, on HTTP/1 and 2.
func TestLong(t *testing.T) {
	cert, pool := certificate(t)
	release := make(chan struct{})
	s := httptest.NewUnstartedServer(Long(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "first\n")
			<-release
			if err := r.Context().Err(); err != nil {
				t.Errorf("the request ended: %v", err)
			}
			_, _ = io.WriteString(w, "last\n")
		}), time.Minute))
	const limit = time.Second // the handshake has it too
	s.Config.ReadTimeout, s.Config.WriteTimeout = limit, limit
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for _, two := range []bool{false, true} {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: two,
		}
		resp, err := (&http.Client{Transport: transport}).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len("first\n"))
		if _, err := io.ReadFull(resp.Body, first); err != nil || (resp.ProtoMajor == 2) != two {
			t.Fatalf("HTTP/%d: %v", resp.ProtoMajor, err)
		}
		time.Sleep(3 * limit / 2)
		release <- struct{}{}
		if last, err := io.ReadAll(resp.Body); err != nil || string(last) != "last\n" {
			t.Errorf("HTTP/%d: %v %q", resp.ProtoMajor, err, last)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
	}
}

// Requests are counted by the first part of known paths.
func TestRequestsAreCounted(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	s, _ := start(t, Config{Registry: registry, Listeners: []Listener{
		{Address: anyPort},
		{Address: anyPort, Type: ReadOnly, Routes: []route.Route{
			route.JSON("/metrics/cadvisor", func() any { return 1 }),
			route.JSON("/debug/x/{y}", func() any { return 1 }),
			MetricsRoute(registry),
		}},
	}})
	request(t, "GET", s.Addrs()[0], "/healthz")
	for _, path := range []string{
		"/metrics/cadvisor", "/debug/x/7", "/none/7", "/healthz/ping", "/metrics/none",
	} {
		request(t, "GET", s.Addrs()[1], path)
	}
	request(t, "BREW", s.Addrs()[1], "/healthz")
	_, body := request(t, "GET", s.Addrs()[1], "/metrics")
	for _, want := range []string{
		`requests_total{long_running="false",method="GET",path="metrics/cadvisor",` +
			`server_type="readonly"} 1`,
		`requests_total{long_running="true",method="GET",path="debug",server_type="readonly"} 1`,
		`requests_total{long_running="false",method="GET",path="other",server_type="readonly"} 2`,
		`requests_total{long_running="false",method="GET",path="healthz",` +
			`server_type="readonly"} 1`,
		`requests_total{long_running="false",method="other",path="healthz",` +
			`server_type="readonly"} 1`,
		`inflight_requests{long_running="false",method="GET",path="metrics",` +
			`server_type="readonly"} 1`,
		`requests_duration_seconds_count{long_running="true",method="GET",path="debug",` +
			`server_type="readonly"} 1`,
	} {
		if !strings.Contains(body, "\nkubelet_http_"+want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
}

// Pods that have not ended are listed as they were admitted, and found by name and UID.
func TestAllocated(t *testing.T) {
	named := func(name string, phase v1.PodPhase) *v1.Pod {
		return podtest.New("n/"+name, podtest.UID("u-"+name), podtest.Phase(phase),
			func(p *v1.Pod) { p.Spec.NodeName = "node" })
	}
	s, _ := start(t, Config{Listeners: []Listener{{Address: anyPort, Routes: AllocatedRoutes(
		func() []*v1.Pod { return []*v1.Pod{named("a", v1.PodRunning), named("b", v1.PodFailed)} })}}})
	const a = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u-a"},` +
		`"spec":{"containers":null,"nodeName":"node"},"status":{}}`
	for path, want := range map[string]string{
		"/allocatedPods":         `200 {"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` + a + `]}`,
		"/allocatedPods/n/a":     "200 " + a,
		"/allocatedPods/n/a/u-a": "200 " + a,
		"/allocatedPods/n/a/u-b": "404 pod not found\n",
		"/allocatedPods/n/b":     "404 pod not found\n",
		"/allocatedPods/m/a":     "404 pod not found\n",
	} {
		code, text := request(t, http.MethodGet, s.Addrs()[0], path)
		if got := fmt.Sprintf("%d %s", code, text); got != want {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
	}
}
