package test

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/test/harness"
)

// kubeletMetrics lists all metrics that kubelet 1.37.1 declares, including those of its server and
// its serving certificate, one per line: name, type, labels, buckets.
//
//go:embed testdata/kubelet-metrics.txt
var kubeletMetrics string

// Each metric with the kubelet's prefix is one of the kubelet, with its type, labels and buckets.
// The metrics of pod starts and of the runtime count what was done, and no pods of an earlier run.
func TestMetricsAreTheKubelets(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["topologyManagerPolicy"] = "single-numa-node"
	n.Start()
	n.Pod("web", manifestOf("web", "containers: [{name: main, image: sim.local/app}, "+
		"{name: side, image: sim.local/app}]"))
	n.AwaitPhase("web-node", v1.PodRunning)
	awaitMetrics(n, "a pod has started",
		"kubelet_pod_start_duration_seconds_count 1",
		"kubelet_pod_start_sli_duration_seconds_count 1",
		"kubelet_pod_start_total_duration_seconds_count 1",
		"kubelet_pod_worker_start_duration_seconds_count 1",
		`kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1`,
		"kubelet_containers_per_pod_count_sum 2",
		`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"} 2`,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",`+
			`pull_policy="always",pull_required="true"} 2`,
		`kubelet_runtime_operations_total{operation_type="run_podsandbox"} 1`,
		`kubelet_runtime_operations_duration_seconds_count{operation_type="start_container"} 2`,
		`kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""} 1`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1`,
		`kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 0`,
		`kubelet_restarted_pods_total{static="true"} 0`,
		`kubelet_container_aligned_compute_resources_count{boundary="numa_node",scope="pod"} 0`,
		`kubelet_container_aligned_compute_resources_failure_count{boundary="numa_node",`+
			`scope="container"} 0`)
	areTheKubelets(t, n)
	n.Kill()
	n.Start()
	n.AwaitPhase("web-node", v1.PodRunning)
	awaitMetrics(n, "a pod was adopted",
		`kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1`,
		"kubelet_pod_start_duration_seconds_count 0",
		"kubelet_pod_start_total_duration_seconds_count 0")
	n.RemovePod("web")
	n.AwaitGone("web-node")
	awaitMetrics(n, "the pod is gone",
		`kubelet_pod_worker_duration_seconds_count{operation_type="kill"} 1`,
		`kubelet_pod_worker_duration_seconds_count{operation_type="terminated"} 1`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 0`,
		`kubelet_working_pods{config="orphan",lifecycle="terminated",static="true"} 0`)
	areTheKubelets(t, n)
}

func awaitMetrics(n *harness.Node, what string, lines ...string) {
	n.Eventually(what, func() error {
		text := n.Get("/metrics")
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				return fmt.Errorf("the metrics lack %s", line)
			}
		}
		return nil
	})
}

// areTheKubelets compares each metric that has the kubelet's prefix with the kubelet's declaration.
func areTheKubelets(t *testing.T, n *harness.Node) {
	t.Helper()
	declared := map[string]string{}
	for line := range strings.Lines(kubeletMetrics) {
		name, shape, _ := strings.Cut(strings.TrimSpace(line), " ")
		declared[name] = shape
	}
	families, err := testutil.TextToMetricFamilies(strings.NewReader(n.Get("/metrics")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !strings.HasPrefix(name, "kubelet_") {
			continue
		}
		if got, want := shape(families[name]), declared[name]; got != want {
			t.Errorf("%s is\n\t%s, in the kubelet\n\t%s", name, got, want)
		}
	}
}

// shape returns the type of a metric with its labels and buckets.
func shape(f *testutil.MetricFamily) string {
	out := strings.ToLower(f.GetType().String())
	one := f.GetMetric()[0]
	var labels, buckets []string
	for _, l := range one.GetLabel() {
		labels = append(labels, l.GetName())
	}
	for _, b := range one.GetHistogram().GetBucket() {
		if text := fmt.Sprintf("%.10g", b.GetUpperBound()); text != "+Inf" {
			buckets = append(buckets, text)
		}
	}
	if len(labels) > 0 {
		slices.Sort(labels)
		out += " {" + strings.Join(labels, ",") + "}"
	}
	if len(buckets) > 0 {
		out += " " + strings.Join(buckets, ",")
	}
	return out
}
