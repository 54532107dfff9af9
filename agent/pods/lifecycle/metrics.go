package lifecycle

import (
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric"
)

// measures are the kubelet's metrics about its view of the runtime.
type measures struct {
	metric.Set
	relistDuration    *metrics.Histogram
	relistInterval    *metrics.Histogram
	lastSeen          *metrics.Gauge
	runningPods       *metrics.Gauge
	runningContainers *metrics.GaugeVec
	podRead           *metrics.Histogram
	streams           *metrics.Counter
	streamErrors      *metrics.Counter
	eventLatency      *metrics.Histogram

	counting sync.Mutex // orders counts: older ones never come last
}

func newMeasures() *measures {
	m := &measures{}
	m.relistDuration = m.Histogram("kubelet_pleg_relist_duration_seconds",
		"How long listing all pods of the runtime took, in seconds.", metrics.DefBuckets)
	m.relistInterval = m.Histogram("kubelet_pleg_relist_interval_seconds",
		"Time between the starts of two listings of the runtime, in seconds.", metrics.DefBuckets)
	m.lastSeen = m.Gauge("kubelet_pleg_last_seen_seconds",
		"When the runtime was last listed, in seconds since the epoch.")
	m.runningPods = m.Gauge("kubelet_running_pods", "Pods that have a ready sandbox.")
	m.runningContainers = m.Gauges("kubelet_running_containers",
		"Containers that the runtime has, by state.", "container_state")
	m.podRead = m.Histogram("kubelet_pleg_pod_relist_duration_seconds",
		"How long reading one pod of the runtime took, in seconds.", metrics.DefBuckets)
	m.streams = m.Counter("kubelet_evented_pleg_connection_success_count",
		"Container event streams that began.")
	m.eventLatency = m.Histogram("kubelet_evented_pleg_connection_latency_seconds",
		"Time from when something happened to a container until its event came, in seconds.",
		metrics.DefBuckets)
	m.streamErrors = m.Counter("kubelet_evented_pleg_connection_error_count",
		"Container event streams that ended.")
	return m
}

func (m *measures) relisted(start, before time.Time) {
	now := time.Now()
	m.relistDuration.Observe(now.Sub(start).Seconds())
	if !before.IsZero() {
		m.relistInterval.Observe(start.Sub(before).Seconds())
	}
	m.lastSeen.Set(float64(now.UnixNano()) / 1e9)
}

// count shows what a cache has.
func (m *measures) count(of *cache) {
	m.counting.Lock()
	defer m.counting.Unlock()
	c := of.counts()
	m.runningPods.Set(float64(c.pods))
	for _, state := range []cri.ContainerState{
		cri.ContainerCreated, cri.ContainerRunning, cri.ContainerExited, cri.ContainerUnknown,
	} {
		m.runningContainers.WithLabelValues(strings.ToLower(string(state))).
			Set(float64(c.containers[state]))
	}
}
