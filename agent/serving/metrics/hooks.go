package metrics

import (
	"errors"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/internal/metric"
)

// hookMetrics counts special outcomes of hooks.
type hookMetrics struct{ fallbacks, brokenOff *metrics.Counter }

func newHookMetrics(s *metric.Set) hookMetrics {
	return hookMetrics{
		fallbacks: s.Counter("kubelet_lifecycle_handler_http_fallbacks_total",
			"Hooks whose server was to be asked with TLS and answered only without."),
		brokenOff: s.Counter("kubelet_sleep_action_terminated_early_total",
			"Hooks that were to sleep longer than the container had."),
	}
}

// Hooked counts a finished hook. fallback is set if its server was asked again without TLS.
func (m *Metrics) Hooked(fallback bool, err error) {
	if fallback {
		m.pods.hooks.fallbacks.Inc()
	}
	if errors.Is(err, handler.ErrBrokenOff) {
		m.pods.hooks.brokenOff.Inc()
	}
}
