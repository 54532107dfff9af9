package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/route"
)

// show returns the answer of a route.
func show(r route.Route) string {
	w := httptest.NewRecorder()
	r.Handler.ServeHTTP(w, httptest.NewRequest(r.Method, r.Pattern, nil))
	return w.Body.String()
}

// The metrics of libraries are added to the agent's own, which take precedence.
func TestMetricsOfLibraries(t *testing.T) {
	registry := NewRegistry()
	own := metrics.NewGauge(&metrics.GaugeOpts{Name: "go_threads", Help: "The agent's."})
	registry.MustRegister(own)
	own.Set(7)
	clientmetrics.RequestResult.Increment(t.Context(), "200", http.MethodGet, "api")
	text := show(MetricsRoute(registry))
	for _, want := range []string{
		"# TYPE kubernetes_build_info gauge", "# TYPE process_open_fds gauge",
		"# TYPE go_goroutines gauge", "go_threads 7\n",
		`rest_client_requests_total{code="200",host="api",method="GET"} 1`,
		"# TYPE registered_metrics_total",
	} {
		if n := strings.Count(text, want); n != 1 {
			t.Errorf("%q is there %d times, not once", want, n)
		}
	}
}

// /metrics/slis counts the results of health checks.
func TestSLIs(t *testing.T) {
	slis := SLIRoute()
	s, stop := start(t, Config{Listeners: []Listener{{Address: "127.0.0.1:0"}}})
	defer stop()
	if code, text := request(t, http.MethodGet, s.Addrs()[0], "/healthz"); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	text := show(slis)
	for _, want := range []string{
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
