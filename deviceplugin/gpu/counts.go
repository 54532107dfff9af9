package gpu

import (
	"strconv"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// counts holds the plugin's metrics.
type counts struct {
	metric.Set
	up      *metrics.Gauge
	devices *metrics.GaugeVec
	changes *metrics.CounterVec
	xids    *metrics.CounterVec
}

func newCounts() *counts {
	c := &counts{}
	c.up = c.Gauge("numalet_gpu_driver_up", "1 if the NVIDIA driver answers, else 0")
	c.devices = c.Gauges("numalet_gpu_devices",
		"Devices by resource and reason for not being healthy, empty if they are",
		"resource", "reason")
	c.changes = c.Counters("numalet_gpu_health_changes_total",
		"Changes of a device's health by its UUID and reason, Recovered if it is healthy again",
		"gpu", "reason")
	c.xids = c.Counters("numalet_gpu_xids_total", "XID events by GPU and class",
		"gpu", "class", "xid")
	return c
}

// changed counts a change of health of a GPU or MIG device.
func (c *counts) changed(uuid string, reason Reason) {
	c.changes.WithLabelValues(uuid, string(reason)).Inc()
}

// xid counts an event. All undocumented codes share one label, which bounds the label's values.
func (c *counts) xid(gpu string, xid uint64, class Class) {
	code := "other"
	if _, known := xids[xid]; known {
		code = strconv.FormatUint(xid, 10)
	}
	c.xids.WithLabelValues(gpu, string(class), code).Inc()
}

func (c *counts) tell(all offers, up bool) {
	c.up.Set(0)
	if up {
		c.up.Set(1)
	}
	c.devices.Reset()
	for resource, o := range all.resources {
		for _, d := range o.devices {
			c.devices.WithLabelValues(resource, string(reasonOf(d.troubles))).Inc()
		}
	}
}
