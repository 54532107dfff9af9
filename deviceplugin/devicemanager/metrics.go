package devicemanager

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// instruments holds the metrics of device plugins, the kubelet's under its names, and ours. They
// count only once registered.
type instruments struct {
	metric.Set
	registrations *metrics.CounterVec
	allocations   *metrics.HistogramVec
	// calls and took cover every call to a plugin; devices has the numbers of the inventory.
	calls   *metrics.CounterVec
	took    *metrics.HistogramVec
	devices *metrics.GaugeVec
	// healthChanges counts changes of devices' health, refused the lists that were too long to be read.
	healthChanges, refused *metrics.CounterVec
}

// Names of calls in metrics: the API's, and the connection.
const (
	rpcDial      = "Dial"
	rpcOptions   = "GetDevicePluginOptions"
	rpcList      = "ListAndWatch" // up to the first message
	rpcPreferred = "GetPreferredAllocation"
	rpcAllocate  = "Allocate"
	rpcPreStart  = "PreStartContainer"
	rpcReleased  = "Released" // of lifecyclev1, like Reasons and Places
	rpcReasons   = "Reasons"
	rpcPlaces    = "Places"
)

func newInstruments() *instruments {
	const resource = "resource_name"
	i := &instruments{}
	i.registrations = i.Counters("kubelet_device_plugin_registration_total",
		"Number of device plugin registrations, by resource name.", resource)
	i.allocations = i.Histograms("kubelet_device_plugin_alloc_duration_seconds",
		"Duration in seconds of Allocate calls to device plugins, by resource name.",
		metrics.DefBuckets, resource)
	i.calls = i.Counters("numalet_device_plugin_calls_total", "Number of calls to device plugins, "+
		"by outcome: ok, deadline_exceeded, unavailable, bad_answer or error.",
		resource, "rpc", "outcome")
	i.healthChanges = i.Counters("numalet_device_plugin_health_changes_total", "Number of devices whose "+
		"plugin has said another health than before, by the new one: healthy or unhealthy.",
		resource, "to")
	i.refused = i.Counters("numalet_device_plugin_lists_refused_total",
		"Number of lists of devices that were not read because they are too long.", resource)
	i.took = i.Histograms("numalet_device_plugin_call_duration_seconds",
		"Duration in seconds of calls to device plugins; of ListAndWatch up to the first list.",
		// Up to 65 s: the longest deadline is 30 s.
		metrics.ExponentialBuckets(.001, 4, 9), resource, "rpc")
	i.devices = i.Gauges("numalet_device_plugin_devices",
		"Devices of the node, by what they count for: capacity or allocatable.", resource, "of")
	return i
}

// called counts a finished call.
func (i *instruments) called(resource, rpc string, took time.Duration, err error) {
	i.calls.WithLabelValues(resource, rpc, outcomeOf(err)).Inc()
	i.took.WithLabelValues(resource, rpc).Observe(took.Seconds())
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, new(*AnswerError)):
		return "bad_answer"
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return "deadline_exceeded"
	case status.Code(err) == codes.Unavailable:
		return "unavailable"
	}
	return "error"
}

// healthChanged counts devices whose health changed.
func (i *instruments) healthChanged(resource string, devices []*Device) {
	unhealthy := 0
	for _, d := range devices {
		unhealthy += count(!d.Healthy)
	}
	i.healthChanges.WithLabelValues(resource, "healthy").Add(float64(len(devices) - unhealthy))
	i.healthChanges.WithLabelValues(resource, "unhealthy").Add(float64(unhealthy))
}

// show sets the gauges from an inventory. They are 0 for a resource that is gone.
func (i *instruments) show(now Inventory) {
	for name, r := range now.Resources {
		i.devices.WithLabelValues(name, "capacity").Set(float64(r.Capacity))
		i.devices.WithLabelValues(name, "allocatable").Set(float64(r.Allocatable))
	}
	for _, name := range now.Gone {
		i.devices.WithLabelValues(name, "capacity").Set(0)
		i.devices.WithLabelValues(name, "allocatable").Set(0)
	}
}
