package podresources

import (
	"fmt"

	"k8s.io/component-base/metrics"
)

// measures count calls, with the kubelet's names, and watches.
type measures struct {
	total, list, get, allocatable            *metrics.CounterVec
	listErrors, getErrors, allocatableErrors *metrics.CounterVec

	watches *metrics.Gauge
	dropped *metrics.Counter
}

func newMeasures(registry metrics.KubeRegistry) (*measures, error) {
	counter := func(name, help string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_" + name, Help: help,
			StabilityLevel: metrics.ALPHA,
		}, []string{"server_api_version"})
	}
	m := &measures{
		total:       counter("requests_total", "Calls of the pod resources API."),
		list:        counter("requests_list", "Calls of List."),
		get:         counter("requests_get", "Calls of Get."),
		allocatable: counter("requests_get_allocatable", "Calls of GetAllocatableResources."),
		listErrors:  counter("errors_list", "Calls of List that failed."),
		getErrors:   counter("errors_get", "Calls of Get that failed."),
		allocatableErrors: counter("errors_get_allocatable",
			"Calls of GetAllocatableResources that failed."),
		watches: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "numalet_pod_resources_watches", Help: "Watches of pod resources that are open.",
			StabilityLevel: metrics.ALPHA,
		}),
		dropped: metrics.NewCounter(&metrics.CounterOpts{
			Name: "numalet_pod_resources_watches_dropped_total",
			Help: "Watches of pod resources that were ended because their reader was too " +
				"slow.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []metrics.Registerable{
		m.total, m.list, m.get, m.allocatable, m.listErrors, m.getErrors, m.allocatableErrors,
		m.watches, m.dropped,
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metric %s: %w", c.FQName(), err)
		}
	}
	return m, nil
}

// count counts a call of version v1.
func (m *measures) count(call *metrics.CounterVec) {
	m.total.WithLabelValues("v1").Inc()
	call.WithLabelValues("v1").Inc()
}
