package stats

import (
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// register registers the node's own metrics about statistics.
func (c *Collector) register(r metrics.KubeRegistry) error {
	var s metric.Set
	version := s.Gauge("kubelet_cgroup_version", "Version of the kernel's control groups: 1 or 2.")
	provider := s.Gauges("kubelet_metrics_provider",
		"Where the metrics of containers come from; the value is always 1.", "provider")
	s.Read("kubelet_container_log_filesystem_used_bytes", "Bytes that the logs of a container use.",
		[]string{"uid", "namespace", "pod", "container"}, c.logSizes)
	if r == nil {
		return nil
	}
	if err := s.Register(r); err != nil {
		return err
	}
	version.Set(float64(c.cfg.Groups.Version()))
	provider.WithLabelValues("cri").Set(1)
	return nil
}

// logSizes reports each container whose logs were measured.
func (c *Collector) logSizes(tell metric.Tell) {
	for uid, p := range c.cfg.Disks.Pods() {
		for name, logs := range p.Logs {
			tell(float64(logs.Bytes), string(uid), p.Namespace, p.Name, name)
		}
	}
}
