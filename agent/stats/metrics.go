package stats

import (
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/topology/metric"
)

// register has the metrics of the node's own that tell of statistics.
func (c *Collector) register(r metrics.KubeRegistry) error {
	var s metric.Set
	version := s.Gauge("kubelet_cgroup_version", "Version of the kernel's control groups: 1 or 2.")
	provider := s.Gauges("kubelet_metrics_provider",
		"Where the metrics of containers come from; the value is always 1.", "provider")
	if r == nil {
		return nil
	}
	if err := s.Register(r); err != nil {
		return err
	}
	version.Set(float64(c.cfg.Groups.Version()))
	provider.WithLabelValues("cri").Set(1)
	return r.CustomRegister(&logSizes{disks: c.disks})
}

// logSizes is a metric of the containers that there are: what was found of their logs.
type logSizes struct {
	metrics.BaseStableCollector
	disks *Disks
}

var logSize = metrics.NewDesc("kubelet_container_log_filesystem_used_bytes",
	"Bytes that the logs of a container use.",
	[]string{"uid", "namespace", "pod", "container"}, nil, metrics.ALPHA, "")

// DescribeWithStability has the one metric.
func (*logSizes) DescribeWithStability(to chan<- *metrics.Desc) { to <- logSize }

// CollectWithStability has a value for each container whose logs were measured.
func (l *logSizes) CollectWithStability(to chan<- metrics.Metric) {
	for _, p := range l.disks.Get().Pods {
		for name, logs := range p.Logs {
			to <- metrics.NewLazyConstMetric(logSize, metrics.GaugeValue,
				float64(*logs.UsedBytes), p.Pod.UID, p.Pod.Namespace, p.Pod.Name, name)
		}
	}
}
