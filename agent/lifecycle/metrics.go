package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/cri"
)

// measures are the kubelet's metrics about its view of the runtime.
type measures struct {
	relistDuration    *metrics.Histogram
	relistInterval    *metrics.Histogram
	lastSeen          *metrics.Gauge
	runningPods       *metrics.Gauge
	runningContainers *metrics.GaugeVec
	streamErrors      *metrics.Counter
}

func newMeasures() *measures {
	histogram := func(name, help string) *metrics.Histogram {
		return metrics.NewHistogram(&metrics.HistogramOpts{
			Subsystem: "kubelet", Name: name, Help: help, Buckets: metrics.DefBuckets,
			StabilityLevel: metrics.ALPHA,
		})
	}
	gauge := func(name, help string) *metrics.Gauge {
		return metrics.NewGauge(&metrics.GaugeOpts{
			Subsystem: "kubelet", Name: name, Help: help, StabilityLevel: metrics.ALPHA,
		})
	}
	return &measures{
		relistDuration: histogram("pleg_relist_duration_seconds",
			"How long listing all pods of the runtime took, in seconds."),
		relistInterval: histogram("pleg_relist_interval_seconds",
			"Time between the starts of two listings of the runtime, in seconds."),
		lastSeen: gauge("pleg_last_seen_seconds",
			"When the runtime was last listed, in seconds since the epoch."),
		runningPods: gauge("running_pods", "Pods that have a ready sandbox."),
		runningContainers: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Subsystem: "kubelet", Name: "running_containers",
			Help:           "Containers that the runtime has, by state.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"container_state"}),
		streamErrors: metrics.NewCounter(&metrics.CounterOpts{
			Subsystem: "kubelet", Name: "evented_pleg_connection_error_count",
			Help:           "Container event streams that ended.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
}

// register makes the metrics count; without a registry they are no-ops.
func (m *measures) register(r Registry) error {
	if r == nil {
		return nil
	}
	for _, metric := range []metrics.Registerable{
		m.relistDuration, m.relistInterval, m.lastSeen,
		m.runningPods, m.runningContainers, m.streamErrors,
	} {
		if err := r.Register(metric); err != nil {
			return fmt.Errorf("register metric %s: %w", metric.FQName(), err)
		}
	}
	return nil
}

func (m *measures) relisted(start, before time.Time) {
	now := time.Now()
	m.relistDuration.Observe(now.Sub(start).Seconds())
	if !before.IsZero() {
		m.relistInterval.Observe(start.Sub(before).Seconds())
	}
	m.lastSeen.Set(float64(now.UnixNano()) / 1e9)
}

func (m *measures) pods(c census) {
	m.runningPods.Set(float64(c.pods))
	for _, state := range []cri.ContainerState{
		cri.ContainerCreated, cri.ContainerRunning, cri.ContainerExited, cri.ContainerUnknown,
	} {
		m.runningContainers.WithLabelValues(strings.ToLower(string(state))).
			Set(float64(c.containers[state]))
	}
}
