package provider

import (
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// runs holds the metrics of the programs' runs.
type runs struct {
	took   *metrics.HistogramVec
	failed *metrics.CounterVec
}

// register registers the metrics, and reports the configuration's digest.
func register(r metrics.KubeRegistry, digest string) (runs, error) {
	var s metric.Set
	out := runs{
		took: s.Histograms("kubelet_credential_provider_plugin_duration",
			"Seconds that a run of a credential provider's program took.", metrics.DefBuckets,
			"plugin_name"),
		failed: s.Counters("kubelet_credential_provider_plugin_errors_total",
			"Runs of a credential provider's program that failed.", "plugin_name"),
	}
	info := s.Gauges("kubelet_credential_provider_config_info",
		"The digest of the credential providers' configuration.", "hash")
	err := s.Register(r)
	info.WithLabelValues(digest).Set(1)
	return out, err
}

func (r runs) done(name string, began time.Time, err error) {
	r.took.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		r.failed.WithLabelValues(name).Inc()
	}
}
