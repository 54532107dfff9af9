package selinux

import (
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// instruments has the kubelet's metrics of labels.
type instruments struct {
	metric.Set
	container, pod, volume mismatches
	admitted               *metrics.GaugeVec
}

// mismatches count what keeps pods from volumes, and what will once more volumes have labels.
type mismatches struct{ errors, warnings *metrics.GaugeVec }

func newInstruments() *instruments {
	i := &instruments{}
	const prefix = "volume_manager_selinux_"
	both := func(of, what string, labels ...string) mismatches {
		return mismatches{
			i.Gauges(prefix+of+"_errors_total", "Attempts to set up volumes that failed because "+what, labels...),
			i.Gauges(prefix+of+"_warnings_total", "Attempts to set up volumes that will fail one day because "+what,
				labels...),
		}
	}
	i.container = both("container", "a container's SELinux options make no label.", "access_mode")
	i.pod = both("pod_context_mismatch", "containers of the pod have the volume with different SELinux labels.",
		"access_mode")
	i.volume = both("volume_context_mismatch", "another pod has the volume with another SELinux label.",
		"volume_plugin", "access_mode")
	i.admitted = i.Gauges(prefix+"volumes_admitted_total", "Volumes that were to get an SELinux label.",
		"volume_plugin", "access_mode")
	return i
}
