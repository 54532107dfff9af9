package metrics

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric"
)

// storageBuckets are the kubelet's, in seconds.
var storageBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// volumeMetrics holds the metrics of volumes and of mounted images.
type volumeMetrics struct {
	operations, overall                *metrics.HistogramVec
	imagesWanted, imagesHad, imagesNot *metrics.Counter
	reconstructed, cleaned             attempts
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
			if c.PVC == "" {
				continue
			}
			g.gauge.WithLabelValues(c.Namespace, c.PVC).Set(float64(g.of(c.Room)))
		}
	}
}

// VolumeLooked records how long measuring a volume took, by method: du, statfs, block or a driver.
func (m *Metrics) VolumeLooked(by string, took time.Duration) {
	m.volumes.looks.WithLabelValues(by).Observe(took.Seconds())
}

func newVolumeMetrics(s *metric.Set) *volumeMetrics {
	return &volumeMetrics{
		operations: s.Histograms("storage_operation_duration_seconds",
			"Seconds that an operation on a volume took, by the volume's type.", storageBuckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		overall: s.Histograms("volume_operation_total_seconds",
			"Seconds from the time when a volume was wanted until it was mounted, by its type.",
			storageBuckets, "plugin_name", "operation_name"),
		reconstructed: attempts{
			s.Counter("reconstruct_volume_operations_total",
				"Volumes of earlier runs that were found when the agent began."),
			s.Counter("reconstruct_volume_operations_errors_total",
				"Volumes of those whose type or driver could not be found out."),
		},
		cleaned: attempts{
			s.Counter("force_cleaned_failed_volume_operations_total",
				"Attempts to remove volumes whose type or driver could not be found out."),
			s.Counter("force_cleaned_failed_volume_operation_errors_total",
				"Attempts of those that failed."),
		},
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

// Mounted records an operation on a volume.
func (m *Metrics) Mounted(o operation.Done) {
	switch o.Name {
	case operation.Overall:
		m.volumes.overall.WithLabelValues(o.Plugin, o.Name).Observe(o.Took.Seconds())
		return
	case operation.Reconstruct:
		m.volumes.reconstructed.count(o.Err)
		return
	case operation.ForceClean:
		m.volumes.cleaned.count(o.Err)
		return
	}
	status := "success"
	if o.Err != nil {
		status = "fail-unknown"
	}
	m.volumes.operations.WithLabelValues(o.Plugin, o.Name, status, strconv.FormatBool(o.Migrated)).
		Observe(o.Took.Seconds())
}
