package metrics

import (
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/topology/metric"
)

// storageBuckets are the kubelet's, in seconds.
var storageBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

func newMounts(s *metric.Set) *metrics.HistogramVec {
	return s.Histograms("storage_operation_duration_seconds",
		"Seconds to set up a volume or to bring it up to date, by its type.", storageBuckets,
		"volume_plugin", "operation_name", "status", "migrated")
}

// Mounted takes that a volume was set up, or that it could not be.
func (m *Metrics) Mounted(plugin string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.mounts.WithLabelValues(plugin, "volume_mount", status, "false").Observe(took.Seconds())
}
