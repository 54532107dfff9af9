package probe

import (
	"errors"
	"math"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/internal/route"
)

// measures holds the metrics of all probes. They have their own registry and path, since there are
// many. As with the kubelet, the histogram has only a sum and a count.
type measures struct {
	registry metrics.KubeRegistry
	total    *metrics.CounterVec
	duration *metrics.HistogramVec
}

func newMeasures() (measures, error) {
	var s metric.Set
	m := measures{
		registry: metrics.NewKubeRegistry(),
		total: s.Counters("prober_probe_total",
			"Answers of containers to liveness, readiness and startup probes.",
			"probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		duration: s.Histograms("prober_probe_duration_seconds",
			"How long probes took that succeeded.", []float64{math.Inf(1)},
			"probe_type", "container", "pod", "namespace"),
	}
	return m, errors.Join(s.Register(m.registry),
		metrics.RegisterProcessStartTime(m.registry.Register))
}

// series holds the series of one probe.
type series struct {
	passed, failed metrics.CounterMetric
	took           metrics.ObserverMetric
}

func (m measures) of(pod *v1.Pod, k key) *series {
	total := func(result string) metrics.CounterMetric {
		return m.total.WithLabelValues(
			string(k.kind), result, k.container, pod.Name, pod.Namespace, string(pod.UID))
	}
	return &series{total("successful"), total("failed"),
		m.duration.WithLabelValues(string(k.kind), k.container, pod.Name, pod.Namespace)}
}

// drop deletes the series of a probe.
func (m measures) drop(pod *v1.Pod, k key) {
	labels := map[string]string{
		"probe_type": string(k.kind), "container": k.container,
		"pod": pod.Name, "namespace": pod.Namespace,
	}
	m.duration.Delete(labels)
	labels["pod_uid"] = string(pod.UID)
	for _, result := range []string{"successful", "failed"} {
		labels["result"] = result
		m.total.Delete(labels)
	}
}

// Route serves the metrics of probes.
func (p *Prober) Route() route.Route {
	return route.Route{Method: http.MethodGet, Pattern: "/metrics/probes",
		Handler: metrics.HandlerFor(p.measures.registry, metrics.HandlerOpts{})}
}
