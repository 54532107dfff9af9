package server

import (
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/component-base/metrics"
)

// NewRegistry is a registry with the metrics of the process itself: go_*, process_* and
// kubernetes_build_info.
func NewRegistry() metrics.KubeRegistry {
	r := metrics.NewKubeRegistry()
	r.RawMustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	r.RegisterMetaMetrics()
	metrics.RegisterBuildInfo(r)
	return r
}
