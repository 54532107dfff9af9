// Package metric makes metrics, in one line each, and registers those of a component together.
package metric

import (
	"fmt"

	"k8s.io/component-base/metrics"
)

// Set holds the metrics of a component. They count only once they are registered.
type Set struct {
	all  []metrics.Registerable
	read []*reading
}

// Register registers the metrics; without a registry they never count.
func (s *Set) Register(r metrics.KubeRegistry) error {
	if r == nil {
		return nil
	}
	for _, one := range s.all {
		if err := r.Register(one); err != nil {
			return fmt.Errorf("register metric %s: %w", one.FQName(), err)
		}
	}
	for _, one := range s.read {
		if err := r.CustomRegister(one); err != nil {
			return fmt.Errorf("register metric %s: %w", one.name, err)
		}
	}
	return nil
}

// Counter adds a counter.
func (s *Set) Counter(name, help string) *metrics.Counter {
	return add(s, metrics.NewCounter((*metrics.CounterOpts)(opts(name, help))))
}

// Counters adds a counter for each combination of label values.
func (s *Set) Counters(name, help string, labels ...string) *metrics.CounterVec {
	return add(s, metrics.NewCounterVec((*metrics.CounterOpts)(opts(name, help)), labels))
}

// Gauge adds a gauge.
func (s *Set) Gauge(name, help string) *metrics.Gauge {
	return add(s, metrics.NewGauge((*metrics.GaugeOpts)(opts(name, help))))
}

// Gauges adds a gauge for each combination of label values.
func (s *Set) Gauges(name, help string, labels ...string) *metrics.GaugeVec {
	return add(s, metrics.NewGaugeVec((*metrics.GaugeOpts)(opts(name, help)), labels))
}

// Tell sets a gauge for one combination of label values.
type Tell func(value float64, labels ...string)

// Read adds a gauge that is read at each scrape: read must call Tell once for each existing
// combination of label values. It may run in several goroutines and must not block.
func (s *Set) Read(name, help string, labels []string, read func(Tell)) {
	s.read = append(s.read, &reading{name: name, read: read,
		about: metrics.NewDesc(name, help, labels, nil, metrics.ALPHA, "")})
}

// reading is a gauge that is read at each scrape.
type reading struct {
	metrics.BaseStableCollector
	name  string
	about *metrics.Desc
	read  func(Tell)
}

// DescribeWithStability sends the only description.
func (r *reading) DescribeWithStability(to chan<- *metrics.Desc) { to <- r.about }

// CollectWithStability sends the present values.
func (r *reading) CollectWithStability(to chan<- metrics.Metric) {
	r.read(func(value float64, labels ...string) {
		to <- metrics.NewLazyConstMetric(r.about, metrics.GaugeValue, value, labels...)
	})
}

// Histogram adds a histogram.
func (s *Set) Histogram(name, help string, buckets []float64) *metrics.Histogram {
	return add(s, metrics.NewHistogram(histogram(name, help, buckets)))
}

// Histograms adds a histogram for each combination of label values.
func (s *Set) Histograms(
	name, help string, buckets []float64, labels ...string,
) *metrics.HistogramVec {
	return add(s, metrics.NewHistogramVec(histogram(name, help, buckets), labels))
}

func add[M metrics.Registerable](s *Set, one M) M {
	s.all = append(s.all, one)
	return one
}

func opts(name, help string) *metrics.KubeOpts {
	return &metrics.KubeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}
}

func histogram(name, help string, buckets []float64) *metrics.HistogramOpts {
	return &metrics.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA,
	}
}
