package test

import (
	"fmt"
	"strings"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/serving/tracing/tracingtest"
	"github.com/numalet/numalet/test/harness"
)

// TestTracing: a collector gets the spans of a pod's admission, of the actions that start it, and
// of the calls to the runtime that these consist of.
func TestTracing(t *testing.T) {
	t.Parallel()
	c, n := tracingtest.Start(t), harness.New(t)
	n.Settings["tracing"] = map[string]any{
		"endpoint": c.Endpoint, "samplingRatePerMillion": 1000000,
	}
	n.Start()
	n.Pod("web", plain("web"))
	n.AwaitPhase("web-node", v1.PodRunning)
	of := func(name, action string) (found *otlp.Span) {
		for _, s := range c.Spans() {
			a := tracingtest.Attributes(s)
			if s.GetName() == name && strings.HasPrefix(a["numalet.action"], action) &&
				a["k8s.pod.name"] == "web-node" {
				found = s
			}
		}
		return found
	}
	n.Eventually("the collector has the spans", func() error {
		sandbox := of("syncPod", "CreateSandbox")
		if sandbox == nil || of("admission", "") == nil || of("syncPod", "StartContainer") == nil {
			return fmt.Errorf("of %d spans one is missing", len(c.Spans()))
		}
		for _, s := range c.Spans() {
			if s.GetName() == "runtime.v1.RuntimeService/RunPodSandbox" &&
				string(s.GetParentSpanId()) == string(sandbox.GetSpanId()) {
				return nil
			}
		}
		return fmt.Errorf("the call that makes the sandbox is not a part of %v", sandbox)
	})
	if got := tracingtest.Attributes(of("admission", ""))["numalet.outcome"]; got != "Admit" {
		t.Errorf("the outcome of the admission is %q", got)
	}
}
