package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/internal/route"
)

// The values of the label server_type.
const (
	ReadOnly  = "readonly"
	ReadWrite = "readwrite"
)

// other stands for unknown paths and methods.
const other = "other"

// measures counts requests.
type measures struct {
	metric.Set
	requests *metrics.CounterVec
	inflight *metrics.GaugeVec
	took     *metrics.HistogramVec
}

func newMeasures() *measures {
	m := &measures{}
	labels := []string{"method", "path", "server_type", "long_running"}
	m.requests = m.Counters("kubelet_http_requests_total", "HTTP requests that came.", labels...)
	m.inflight = m.Gauges("kubelet_http_inflight_requests", "HTTP requests under way.", labels...)
	m.took = m.Histograms("kubelet_http_requests_duration_seconds",
		"How long HTTP requests took, in seconds.", metrics.DefBuckets, labels...)
	return m
}

// count wraps next and counts the requests to a listener of that type. It labels them with the
// first part of their path if a route has it.
func (m *measures) count(serverType string, routes []route.Route, next http.Handler) http.Handler {
	roots := map[string]bool{}
	for _, r := range routes {
		roots[root(r.Pattern)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, path := r.Method, root(r.URL.Path)
		if !roots[path] {
			path = other
		}
		switch method {
		case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch,
			http.MethodDelete, http.MethodHead, http.MethodOptions:
		default:
			method = other
		}
		labels := []string{method, path, serverType, strconv.FormatBool(long(path))}
		m.requests.WithLabelValues(labels...).Inc()
		m.inflight.WithLabelValues(labels...).Inc()
		began := time.Now()
		defer func() {
			m.inflight.WithLabelValues(labels...).Dec()
			m.took.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// root returns the first part of a path; for metrics also the second.
func root(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	if parts[0] == "metrics" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// long reports whether requests below that root usually last long.
func long(path string) bool {
	switch path {
	case "exec", "attach", "portforward", "debug": // as in the kubelet
		return true
	default:
		return false
	}
}
