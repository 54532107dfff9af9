package metrics

import (
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/metric"
)

// storageBuckets are the kubelet's, in seconds.
var storageBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// volumeMetrics are those of volumes that are set up, and of images that are mounted.
type volumeMetrics struct {
	setUp                              *metrics.HistogramVec
	imagesWanted, imagesHad, imagesNot *metrics.Counter
}

func newVolumeMetrics(s *metric.Set) *volumeMetrics {
	return &volumeMetrics{
		setUp: s.Histograms("storage_operation_duration_seconds",
			"Seconds to set up a volume or to bring it up to date, by its type.", storageBuckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		imagesWanted: s.Counter("kubelet_image_volume_requested_total",
			"Mounts of images that containers were to be created with."),
		imagesHad: s.Counter("kubelet_image_volume_mounted_succeed_total",
			"Mounts of images that containers were created with."),
		imagesNot: s.Counter("kubelet_image_volume_mounted_errors_total",
			"Mounts of images that the runtime could not make."),
	}
}

// started counts the images that a container mounts, once they were pulled.
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

// Mounted takes that a volume was set up, or that it could not be.
func (m *Metrics) Mounted(plugin string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.volumes.setUp.WithLabelValues(plugin, "volume_mount", status, "false").Observe(took.Seconds())
}
