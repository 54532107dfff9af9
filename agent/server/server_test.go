package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/version"
)

const anyPort = "127.0.0.1:0"

// start runs a server until the test ends or stop is called, which both join it.
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
	s, _ := start(t, Config{
		Healthz: anyPort, ReadOnly: anyPort,
		Checks: []healthz.HealthChecker{healthz.NamedCheck("syncloop", func(*http.Request) error {
			if sick.Load() {
				return errors.New("no sync since noon")
			}
			return nil
		})},
		Pods: func() []*v1.Pod {
			return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}}
		},
		Metrics: registry,
		More: map[string]http.Handler{"/more": http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "and more") })},
		Questions: map[string]http.Handler{"/ask": http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answer") })},
	})
	health, readOnly := s.HealthzAddr(), s.ReadOnlyAddr()
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
		{"POST", health, "/ask", 405, ""},
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
	s, _ := start(t, Config{ReadOnly: anyPort})
	if s.HealthzAddr() != nil {
		t.Error("healthz is on without an address")
	}
	_, body := request(t, "GET", s.ReadOnlyAddr(), "/pods")
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
	for _, tc := range []struct {
		conf Config
		want string
	}{
		{Config{Healthz: addr}, "--healthz-port"},
		{Config{Healthz: anyPort, ReadOnly: addr}, "--read-only-port"},
	} {
		_, err := New(tc.conf)
		if err == nil || !strings.Contains(err.Error(), addr) ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%+v): %v", tc.conf, err)
		}
	}
}

// TestShutdown: a request under way when the agent stops is still answered, a new one is not.
func TestShutdown(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, stop := start(t, Config{ReadOnly: anyPort, More: map[string]http.Handler{
		"/slow": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done() // the agent is stopping
			<-leave
			io.WriteString(w, "done")
		}),
	}})
	addr := s.ReadOnlyAddr()
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
