package deviceplugin

import (
	"errors"

	"k8s.io/component-base/metrics"
)

// instruments are the kubelet's metrics of device plugins. They count only once registered.
type instruments struct {
	registrations *metrics.CounterVec
	allocations   *metrics.HistogramVec
}

func newInstruments() *instruments {
	labels := []string{"resource_name"}
	return &instruments{
		registrations: metrics.NewCounterVec(&metrics.CounterOpts{
			Subsystem:      "kubelet",
			Name:           "device_plugin_registration_total",
			Help:           "Number of device plugin registrations, by resource name.",
			StabilityLevel: metrics.ALPHA,
		}, labels),
		allocations: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Subsystem:      "kubelet",
			Name:           "device_plugin_alloc_duration_seconds",
			Help:           "Duration in seconds of Allocate calls to device plugins, by resource name.",
			Buckets:        metrics.DefBuckets,
			StabilityLevel: metrics.ALPHA,
		}, labels),
	}
}

func (i *instruments) register(registry metrics.KubeRegistry) error {
	return errors.Join(registry.Register(i.registrations), registry.Register(i.allocations))
}
