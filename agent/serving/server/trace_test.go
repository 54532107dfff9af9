package server

import (
	"net/http"
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/numalet/numalet/internal/route"
)

// Each request that is allowed has a span by the pattern of its route. What a handler does with the
// connection works as without spans.
func TestTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	text := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("here")) })
	over := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntaken")
		_ = buffer.Flush()
	})
	s, _ := start(t, Config{
		Trace: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Listeners: []Listener{{
			Address: anyPort,
			Routes: []route.Route{
				{Method: http.MethodGet, Pattern: "/pods/{name}", Handler: text},
				{Method: http.MethodGet, Pattern: "/exec/{name}", Handler: over, Stream: true},
			},
			Authorize: func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/pods/secret" {
						http.Error(w, "no", http.StatusForbidden)
						return
					}
					next.ServeHTTP(w, r)
				})
			},
		}},
	})
	addr := s.endpoints[0].listener.Addr()
	for path, want := range map[string]string{
		"/pods/web": "here", "/exec/web": "taken", "/pods/secret": "no\n", "/elsewhere": "404 page not found\n",
	} {
		if _, body := request(t, http.MethodGet, addr, path); body != want {
			t.Errorf("%s answers %q, want %q", path, body, want)
		}
	}
	var names []string
	for _, span := range spans.GetSpans() {
		names = append(names, span.Name)
	}
	slices.Sort(names)
	if want := []string{"GET /", "GET /exec/{name}", "GET /pods/{name}"}; !slices.Equal(names, want) {
		t.Errorf("spans %q, want %q", names, want)
	}
}
