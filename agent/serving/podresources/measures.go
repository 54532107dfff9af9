package podresources

import (
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// measures counts calls, under the kubelet's names, and watches.
type measures struct {
	total, list, get, allocatable            *metrics.CounterVec
	listErrors, getErrors, allocatableErrors *metrics.CounterVec

	watches *metrics.Gauge
	dropped *metrics.Counter
}

func newMeasures(registry metrics.KubeRegistry) (*measures, error) {
	var s metric.Set
	counter := func(name, help string) *metrics.CounterVec {
		return s.Counters("kubelet_pod_resources_endpoint_"+name, help, "server_api_version")
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
		watches: s.Gauge("numalet_pod_resources_watches",
			"Watches of pod resources that are open."),
		dropped: s.Counter("numalet_pod_resources_watches_dropped_total",
			"Watches of pod resources that were ended because their reader was too slow."),
	}
	return m, s.Register(registry)
}

// count counts a call of version v1.
func (m *measures) count(call *metrics.CounterVec) {
	m.total.WithLabelValues("v1").Inc()
	call.WithLabelValues("v1").Inc()
}
