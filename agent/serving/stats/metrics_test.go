package stats

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
)

// samples returns the lines of a text without comments and times.
func samples(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		labels, rest, _ := strings.Cut(line, "} ")
		if rest == "" {
			labels, rest, _ = strings.Cut(line, " ")
			out.WriteString(labels + " " + strings.Fields(rest)[0] + "\n")
			continue
		}
		out.WriteString(labels + "} " + strings.Fields(rest)[0] + "\n")
	}
	return out.String()
}

func ask(t *testing.T, c *Collector, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	for _, r := range c.Routes() {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return w
}

func oneContainer(context.Context) (cri.Stats, error) {
	return cri.Stats{Pods: []*runtimeapi.PodSandboxStats{
		countedPod("sandbox-u1", started, counted("id-main", started, 5500000000, 100)),
	}}, nil
}

const resourceWant = `container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 5.5
container_memory_working_set_bytes{container="main",namespace="default",pod="web"} 100
container_swap_usage_bytes{container="main",namespace="default",pod="web"} 5
container_start_time_seconds{container="main",namespace="default",pod="web"} 1750000000
container_swap_limit_bytes{container="main",namespace="default",pod="web"} 20
node_cpu_usage_seconds_total 9
node_memory_working_set_bytes 6044
node_swap_usage_bytes 1024
pod_cpu_usage_seconds_total{namespace="default",pod="web"} 5.5
pod_memory_working_set_bytes{namespace="default",pod="web"} 100
pod_swap_usage_bytes{namespace="default",pod="web"} 5
resource_scrape_error 0
`

func TestResourceMetrics(t *testing.T) {
	t.Parallel()
	f := &fake{stats: oneContainer}
	c := collector(t, f, t.TempDir(), pod("u1", "web", "main"))
	text := ask(t, c, http.MethodGet, "/metrics/resource").Body.String()
	if got := samples(text); got != resourceWant {
		t.Errorf("metrics are\n%s\nwant\n%s", got, resourceWant)
	}
	for _, line := range []string{
		"# TYPE container_cpu_usage_seconds_total counter",
		"# TYPE pod_memory_working_set_bytes gauge",
		`pod_cpu_usage_seconds_total{namespace="default",pod="web"} 5.5 1750000000000`,
		`container_start_time_seconds{container="main",namespace="default",pod="web"} 1750000000`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the text lacks %q:\n%s", line, text)
		}
	}
	if _, err := testutil.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Error(err)
	}
}

// While nothing is known, the metrics have only the error, and the summary explains it.
func TestNothingKnown(t *testing.T) {
	t.Parallel()
	f := &fake{stats: func(context.Context) (cri.Stats, error) {
		return cri.Stats{}, errors.New("runtime is gone")
	}}
	c := collector(t, f, t.TempDir(), pod("u1", "web", "main"))
	w := ask(t, c, http.MethodGet, "/metrics/resource")
	if got := samples(w.Body.String()); got != "resource_scrape_error 1\n" || w.Code != 200 {
		t.Errorf("metrics are %d %q", w.Code, got)
	}
	for _, path := range []string{"/stats/summary", "/metrics/cadvisor"} {
		w := ask(t, c, http.MethodGet, path)
		if w.Code != 500 || !strings.Contains(w.Body.String(), "runtime is gone") {
			t.Errorf("%s is %d %q", path, w.Code, w.Body)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	c := collector(t, &fake{stats: oneContainer}, t.TempDir(), pod("u1", "web", "main"))
	whole := ask(t, c, http.MethodGet, "/stats/summary").Body.String()
	if !strings.Contains(whole, `"network":{`) || !strings.Contains(whole, `"nodeName":"n1"`) {
		t.Errorf("the summary is %s", whole)
	}
	short := ask(t, c, http.MethodPost, "/stats/summary?only_cpu_and_memory=true").Body.String()
	if strings.Contains(short, `"network"`) || !strings.Contains(short, `"cpu":{`) {
		t.Errorf("the short summary is %s", short)
	}
}

// Without metrics of the runtime, cAdvisor's come from cgroups.
func TestCadvisorFromCgroups(t *testing.T) {
	t.Parallel()
	c := collector(t, &fake{stats: oneContainer}, t.TempDir(), pod("u1", "web", "main"))
	text := ask(t, c, http.MethodGet, "/metrics/cadvisor").Body.String()
	if _, err := testutil.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	const (
		node = `{container="",id="/",image="",name="",namespace="",pod=""`
		web  = `{container="",id="/kubepods/podu1",image="",name="",namespace="default",pod="web"`
		main = `{container="main",id="/kubepods/podu1/id-main",image="registry.local/main",` +
			`name="id-main",namespace="default",pod="web"`
	)
	has(t, samples(text),
		`container_cpu_usage_seconds_total`+node+`,cpu="total"} 9`,
		`container_cpu_usage_seconds_total`+web+`,cpu="total"} 5.5`,
		`container_cpu_usage_seconds_total`+main+`,cpu="total"} 5.5`,
		`container_cpu_user_seconds_total`+main+`} 0.6`,
		`container_cpu_cfs_throttled_periods_total`+main+`} 2`,
		`container_spec_cpu_quota`+main+`} 20000`,
		`container_spec_memory_limit_bytes`+main+`} 8192`,
		`container_memory_working_set_bytes`+main+`} 100`,
		`container_memory_failures_total`+main+`,failure_type="pgfault",scope="container"} 3`,
		`container_processes`+web+`} 8`,
		`container_network_receive_bytes_total`+web+`,interface="eth0"} 10`,
		`container_network_transmit_bytes_total`+node+`,interface="eth0"} 30`,
		`container_network_receive_packets_total`+web+`,interface="eth0"} 6`,
		`container_network_receive_packets_dropped_total`+web+`,interface="eth0"} 8`,
		`container_network_transmit_packets_total`+web+`,interface="eth0"} 10`,
		`container_network_transmit_packets_dropped_total`+web+`,interface="eth0"} 12`,
		`container_network_receive_packets_total`+node+`,interface="eth0"} 1`,
		`container_fs_reads_bytes_total`+main+`,device="999:0"} 1`,
		`container_fs_writes_bytes_total`+main+`,device="999:0"} 2`,
		`container_fs_reads_total`+main+`,device="999:0"} 3`,
		`container_fs_writes_total`+main+`,device="999:0"} 4`,
		`container_threads`+web+`} 8`,
		`container_fs_usage_bytes`+main+`,device=""} 4096`,
		`container_start_time_seconds`+main+`} 1750000000`,
		`container_pressure_cpu_waiting_seconds_total`+node+`} 5e-06`,
		`machine_cpu_cores{boot_id="b",machine_id="m",system_uuid="s"} 4`,
		`machine_cpu_physical_cores{boot_id="b",machine_id="m",system_uuid="s"} 2`,
		`machine_cpu_sockets{boot_id="b",machine_id="m",system_uuid="s"} 1`,
		`machine_memory_bytes{boot_id="b",machine_id="m",system_uuid="s"} 10240`,
		`machine_scrape_error 0`, `container_scrape_error 0`)
	if strings.Contains(text, "container_spec_cpu_quota"+web) {
		t.Error("the pod without a CPU quota has one")
	}
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// The runtime's metrics get the labels that they lack and keep their own. CPU time comes from the
// statistics, because the runtime's is in whole seconds. Invalid names of metrics and the sandboxes
// of other agents are left out.
func TestCadvisorFromRuntime(t *testing.T) {
	t.Parallel()
	base := []string{"pod", "namespace", "container", "id", "image"}
	values := []string{"web", "default", "main", "id-main", "other"}
	counter := runtimeapi.MetricType_COUNTER
	m := cri.Metrics{
		Descriptors: []*runtimeapi.MetricDescriptor{
			{Name: "container_cpu_usage_seconds_total", LabelKeys: base},
			{Name: "container_fs_reads_total", Help: "Reads.", LabelKeys: append(base, "device")},
			{Name: "container_threads", Help: "Threads\nof it.", LabelKeys: base},
			{Name: "no name", LabelKeys: base},
			{Name: "container_odd", LabelKeys: []string{"no label"}},
		},
		Sandboxes: []*runtimeapi.PodSandboxMetrics{
			{PodSandboxId: "sandbox-u1", ContainerMetrics: []*runtimeapi.ContainerMetrics{{
				ContainerId: "id-main", Metrics: []*runtimeapi.Metric{
					{Name: "container_cpu_usage_seconds_total", Value: num(5), LabelValues: values},
					{Name: "container_fs_reads_total", Value: num(12), MetricType: counter,
						LabelValues: append(values, `a"b`), Timestamp: started.UnixNano()},
					{Name: "container_threads", Value: num(3), LabelValues: values},
					{Name: "no name", Value: num(3)}, {Name: "container_odd", Value: num(3)},
					{Name: "not_described", Value: num(3)},
				},
			}}},
			{PodSandboxId: "theirs", Metrics: []*runtimeapi.Metric{
				{Name: "container_threads", Value: num(4)},
			}},
		},
	}
	c := collector(t, &fake{stats: oneContainer, metrics: m}, t.TempDir(),
		pod("u1", "web", "main"))
	text := ask(t, c, http.MethodGet, "/metrics/cadvisor").Body.String()
	families, err := testutil.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	const main = `{container="main",id="/kubepods/podu1/id-main",image="registry.local/main",` +
		`name="id-main",namespace="default",pod="web"`
	has(t, samples(text),
		`container_cpu_usage_seconds_total`+main+`,cpu="total"} 5.5`,
		`container_fs_reads_total`+main+`,device="a\"b"} 12`,
		`container_threads`+main+`} 3`)
	if n := len(families["container_threads"].GetMetric()); n != 1 {
		t.Errorf("there are threads of %d containers, want ours", n)
	}
	for name, f := range families {
		if strings.Contains(name, "odd") || strings.Contains(name, "described") {
			t.Errorf("there is %s", name)
		}
		if name == "container_fs_reads_total" && f.GetType().String() != "COUNTER" {
			t.Errorf("%s is a %s", name, f.GetType())
		}
	}
	if strings.Contains(text, "container_cpu_user_seconds_total"+main) {
		t.Error("cgroups of containers were read although the runtime has metrics")
	}
}
