package metrics

import (
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/numalet/numalet/agent/stats/diskusage"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric"
)

// storageBuckets are the kubelet's, in seconds.
var storageBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// volumeMetrics holds the metrics of volumes and of mounted images.
type volumeMetrics struct {
	setUp                              *metrics.HistogramVec
	imagesWanted, imagesHad, imagesNot *metrics.Counter
	total                              *metrics.GaugeVec
	looks                              *metrics.HistogramVec
	room                               []roomGauge
}

// roomGauge reports one value of a claim's room.
type roomGauge struct {
	gauge *metrics.GaugeVec
	of    func(diskusage.Room) uint64
}

func newRoomGauges(s *metric.Set) []roomGauge {
	gauge := func(name, help string, of func(diskusage.Room) uint64) roomGauge {
		return roomGauge{s.Gauges("kubelet_volume_stats_"+name, help, "namespace",
			"persistentvolumeclaim"), of}
	}
	return []roomGauge{
		gauge("capacity_bytes", "Bytes that the volume of a claim has.",
			func(r diskusage.Room) uint64 { return r.Capacity }),
		gauge("available_bytes", "Bytes that are free for everybody in the volume of a claim.",
			func(r diskusage.Room) uint64 { return r.Available }),
		gauge("used_bytes", "Bytes that are used in the volume of a claim.",
			func(r diskusage.Room) uint64 { return r.Used }),
		gauge("inodes", "Inodes that the volume of a claim has.",
			func(r diskusage.Room) uint64 { return r.Inodes }),
		gauge("inodes_free", "Inodes that are free in the volume of a claim.",
			func(r diskusage.Room) uint64 { return r.InodesFree }),
		gauge("inodes_used", "Inodes that are used in the volume of a claim.",
			func(r diskusage.Room) uint64 { return r.InodesUsed }),
	}
}

// Volumes records the present volumes.
func (m *Metrics) Volumes(now volume.Measured) {
	m.volumes.total.Reset()
	for state, all := range map[string]map[string]int{
		"desired_state_of_world": now.Desired, "actual_state_of_world": now.Actual,
	} {
		for plugin, n := range all {
			m.volumes.total.WithLabelValues(plugin, state).Set(float64(n))
		}
	}
	for _, g := range m.volumes.room {
		g.gauge.Reset()
		for _, c := range now.Rooms {
			if c.Claim == "" {
				continue
			}
			g.gauge.WithLabelValues(c.Namespace, c.Claim).Set(float64(g.of(c.Room)))
		}
	}
}

// VolumeLooked records how long measuring a volume took, by method: du, statfs, block or a driver.
func (m *Metrics) VolumeLooked(by string, took time.Duration) {
	m.volumes.looks.WithLabelValues(by).Observe(took.Seconds())
}

func newVolumeMetrics(s *metric.Set) *volumeMetrics {
	return &volumeMetrics{
		setUp: s.Histograms("storage_operation_duration_seconds",
			"Seconds to set up a volume or to bring it up to date, by its type.", storageBuckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		total: s.Gauges("volume_manager_total_volumes",
			"Volumes that pods use, and those of them that are there, by type.",
			"plugin_name", "state"),
		looks: s.Histograms("kubelet_volume_metric_collection_duration_seconds",
			"Seconds to measure a volume, by what it is measured with.", metrics.DefBuckets,
			"metric_source"),
		room: newRoomGauges(s),
		imagesWanted: s.Counter("kubelet_image_volume_requested_total",
			"Mounts of images that containers were to be created with."),
		imagesHad: s.Counter("kubelet_image_volume_mounted_succeed_total",
			"Mounts of images that containers were created with."),
		imagesNot: s.Counter("kubelet_image_volume_mounted_errors_total",
			"Mounts of images that the runtime could not make."),
	}
}

// started counts the images that a container mounts, after they were pulled.
func (v *volumeMetrics) started(pod *v1.Pod, c *v1.Container, err error) {
	var why *cri.StartError
	reason := ""
	if errors.As(err, &why) {
		reason = why.Reason
	}
	created := err == nil || reason == cri.ReasonRunContainer
	refused := reason == cri.ReasonCreateContainer &&
		strings.Contains(why.Message, crierrors.ErrImageVolumeMountFailed.Error())
	for _, m := range c.VolumeMounts {
		image := slices.ContainsFunc(pod.Spec.Volumes, func(volume v1.Volume) bool {
			return volume.Name == m.Name && volume.Image != nil
		})
		if !image || !created && reason != cri.ReasonCreateContainer {
			continue
		}
		v.imagesWanted.Inc()
		switch {
		case created:
			v.imagesHad.Inc()
		case refused:
			v.imagesNot.Inc()
		}
	}
}

// Mounted records that a volume was set up, or failed to be.
func (m *Metrics) Mounted(plugin string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.volumes.setUp.WithLabelValues(plugin, "volume_mount", status, "false").Observe(took.Seconds())
}
