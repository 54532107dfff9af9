package tracing

import (
	"context"
	"errors"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/numalet/numalet/agent/serving/tracing/tracingtest"
	"github.com/numalet/numalet/internal/podtest"
)

// TestSpans: what the agent does reaches the collector, the last of it when the agent ends. An
// action's error is its span's, and a pod that waits for its admission has one span.
func TestSpans(t *testing.T) {
	c := tracingtest.Start(t)
	all := int32(1000000)
	tracing, err := New(t.Context(),
		&tracingapi.TracingConfiguration{Endpoint: &c.Endpoint, SamplingRatePerMillion: &all}, "node-a")
	if err != nil {
		t.Fatal(err)
	}
	pod := podtest.New("u1")
	tracing.Submitted(pod)
	tracing.Submitted(pod)
	tracing.Decided(pod.UID, "Wait", "WaitingForResources", "no CPUs", true)
	tracing.Decided(pod.UID, "Admit", "", "", false)
	tracing.Decided(pod.UID, "Released", "", "", false)
	ctx, end := tracing.Action(t.Context(), pod, "syncPod", "CreateSandbox #0")
	_, inner := tracing.Provider().Tracer("test").Start(ctx, "call")
	inner.End()
	end(errors.New("no room"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracing.Run(ctx); err != nil {
		t.Fatal(err)
	}
	byName := map[string]*otlp.Span{}
	for _, s := range c.Spans() {
		byName[s.GetName()] = s
	}
	admission, action, call := byName["admission"], byName["syncPod"], byName["call"]
	if len(c.Spans()) != 3 || admission == nil || action == nil || call == nil {
		t.Fatalf("spans are %v", c.Spans())
	}
	if got := tracingtest.Attributes(admission); got["numalet.outcome"] != "Admit" ||
		got["k8s.pod.uid"] != "u1" || len(admission.GetEvents()) != 1 ||
		admission.GetEvents()[0].GetName() != "waits" {
		t.Errorf("admission is %v", admission)
	}
	if got := tracingtest.Attributes(action); got["numalet.action"] != "CreateSandbox #0" ||
		action.GetStatus().GetMessage() != "no room" {
		t.Errorf("the action is %v", action)
	}
	if string(call.GetParentSpanId()) != string(action.GetSpanId()) {
		t.Errorf("the call does not belong to the action: %v", call)
	}
	if !c.Service("service.name=kubelet") || !c.Service("host.name=node-a") {
		t.Error("the spans' service is another")
	}
}

// TestSampling: without a rate nothing is sampled, as with the kubelet.
func TestSampling(t *testing.T) {
	c := tracingtest.Start(t)
	tracing, err := New(t.Context(), &tracingapi.TracingConfiguration{Endpoint: &c.Endpoint}, "n")
	if err != nil {
		t.Fatal(err)
	}
	_, end := tracing.Action(t.Context(), podtest.New("u1"), "syncPod", "a")
	end(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracing.Run(ctx); err != nil || len(c.Spans()) > 0 {
		t.Errorf("spans without a rate: %v, %v", c.Spans(), err)
	}
}

// TestOff: without a configuration there are no spans, and nothing is paid for them.
func TestOff(t *testing.T) {
	off, err := New(t.Context(), nil, "n")
	if off != nil || err != nil || off.Provider() != nil {
		t.Fatalf("New() = %v, %v", off, err)
	}
	pod, ctx := podtest.New("u1"), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		off.Submitted(pod)
		off.Decided(pod.UID, "Admit", "", "", false)
		same, end := off.Action(ctx, pod, "syncPod", "a")
		if end(nil); same != ctx {
			t.Error("the context is another")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
