package cri_test

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
)

// Calls are counted under the kubelet's names; failed calls also count as errors.
func TestCallsAreMeasured(t *testing.T) {
	server, registry := simtest.Start(t, crisim.Config{}), metrics.NewKubeRegistry()
	client, err := cri.Connect(t.Context(), cri.Config{
		RuntimeEndpoint: server.Endpoint(), Registry: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	run := client.Runtime()
	if err := run.StartContainer(t.Context(), "none"); err == nil {
		t.Error("a container that is not there was started")
	}
	if _, err := run.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{}, "h"); err == nil {
		t.Error("a sandbox without a name was made")
	}
	if err := run.StopContainer(t.Context(), "none", 0); err != nil {
		t.Error(err)
	}
	_, err = client.Images().PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "x"}, nil, nil)
	if err != nil {
		t.Error(err)
	}
	const of = "kubelet_runtime_operations"
	want := `# HELP kubelet_run_podsandbox_errors_total [ALPHA] Sandboxes that could not be made, ` +
		`by runtime handler; empty is the default one.
# TYPE kubelet_run_podsandbox_errors_total counter
kubelet_run_podsandbox_errors_total{runtime_handler="h"} 1
# HELP kubelet_runtime_operations_errors_total [ALPHA] Calls to the container runtime that ` +
		`failed, by operation.
# TYPE kubelet_runtime_operations_errors_total counter
kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1
kubelet_runtime_operations_errors_total{operation_type="start_container"} 1
# HELP kubelet_runtime_operations_total [ALPHA] Calls to the container runtime, by operation.
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="pull_image"} 1
kubelet_runtime_operations_total{operation_type="run_podsandbox"} 1
kubelet_runtime_operations_total{operation_type="start_container"} 1
kubelet_runtime_operations_total{operation_type="stop_container"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), of+"_total",
		of+"_errors_total", "kubelet_run_podsandbox_errors_total"); err != nil {
		t.Error(err)
	}
}
