// Package tracingtest has an OpenTelemetry collector for tests.
package tracingtest

import (
	"context"
	"net"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector keeps the spans that it gets.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	// Endpoint is its address, as in a TracingConfiguration.
	Endpoint string

	mu       sync.Mutex // guards the fields below
	spans    []*otlp.Span
	services map[string]bool
}

// Start returns a collector that serves until the end of the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Endpoint: l.Addr().String(), services: map[string]bool{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// Export implements the collector's service.
func (c *Collector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			c.services[a.GetKey()+"="+a.GetValue().GetStringValue()] = true
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans returns what the collector got.
func (c *Collector) Spans() []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*otlp.Span(nil), c.spans...)
}

// Service reports whether spans came from a service with the attribute, "service.name=x".
func (c *Collector) Service(attribute string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.services[attribute]
}

// Attributes returns the text attributes of a span.
func Attributes(s *otlp.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.GetAttributes() {
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}
