// Package tracing records what the agent does as spans and sends them to an OpenTelemetry collector
// (the kubelet's field tracing, gate KubeletTracing).
//
//	admission                        from the first request to the decision; waits are its events
//	syncPod, syncTerminatingPod, ... one action of a pod's worker, as the kubelet calls these rounds
//	  runtime.v1.RuntimeService/...  a call of the runtime, which gets the trace's context
//	GET /pods, ...                   a request to the agent's server, by the pattern of its route
//
// A nil *Tracing is off: its methods do nothing, and callers leave the instruments of clients out.
package tracing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/complaint"
)

// flushing bounds how long the end of the agent waits for a collector.
const flushing = 5 * time.Second

// Tracing makes spans.
type Tracing struct {
	provider tracing.TracerProvider
	tracer   trace.Tracer

	mu   sync.Mutex // guards open
	open map[types.UID]trace.Span
}

// New returns what sends spans to the collector of the configuration; nil without one. The service
// is called as the kubelet's, on the node's host. The collector may come later.
func New(ctx context.Context, c *tracingapi.TracingConfiguration, node string) (*Tracing, error) {
	if c == nil {
		return nil, nil
	}
	provider, err := tracing.NewProvider(ctx, c, nil, []resource.Option{resource.WithAttributes(
		attribute.String("service.name", "kubelet"), attribute.String("host.name", node),
	)})
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: tracing: %w", err)
	}
	report(klog.FromContext(ctx))
	return &Tracing{
		provider: provider, tracer: provider.Tracer("github.com/numalet/numalet"),
		open: map[types.UID]trace.Span{},
	}, nil
}

// report has the library say once, in the log, that spans are lost. It is one for the process.
func report(log klog.Logger) {
	var mu sync.Mutex
	var wrong complaint.Complaint[string]
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if wrong.Begins(err.Error()) {
			log.Info("Spans are lost: the collector of tracing.endpoint does not take them", "err", err)
		}
	}))
}

// Provider returns what clients make their spans with; nil if tracing is off.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Run sends what is left when ctx ends.
func (t *Tracing) Run(ctx context.Context) error {
	<-ctx.Done()
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushing)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).Info("The last spans are lost", "err", err)
	}
	return nil
}

func of(pod *v1.Pod, more ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(append(more,
		attribute.String("k8s.pod.uid", string(pod.UID)),
		attribute.String("k8s.pod", klog.KObj(pod).String()),
		attribute.String("k8s.pod.name", pod.Name),
		attribute.String("k8s.namespace.name", pod.Namespace))...)
}

// Action begins the span of a worker's action, by the name of what the worker is at; calls with the
// context belong to it. end ends it.
func (t *Tracing) Action(ctx context.Context, pod *v1.Pod, name, action string) (
	_ context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, name, of(pod, attribute.String("numalet.action", action)))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Submitted begins the span of a pod's admission, unless it has begun.
func (t *Tracing) Submitted(pod *v1.Pod) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[pod.UID] == nil {
		_, t.open[pod.UID] = t.tracer.Start(context.Background(), "admission", of(pod))
	}
}

// Decided records an outcome of admission. The span ends unless the pod waits.
func (t *Tracing) Decided(uid types.UID, outcome, reason, message string, waits bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	span := t.open[uid]
	if span == nil {
		return
	}
	said := []attribute.KeyValue{attribute.String("numalet.outcome", outcome),
		attribute.String("numalet.reason", reason), attribute.String("numalet.message", message)}
	if waits {
		span.AddEvent("waits", trace.WithAttributes(said...))
		return
	}
	span.SetAttributes(said...)
	span.End()
	delete(t.open, uid)
}
