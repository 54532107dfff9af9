package metrics

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/podspec"
)

// podMetrics counts pods, and what is started for them.
type podMetrics struct {
	desired, active             *metrics.GaugeVec
	rejections, restarted       *metrics.CounterVec
	preempted                   *metrics.CounterVec
	containers, containerErrors *metrics.CounterVec
	// sandboxes counts all, users those of pods with their own user namespace.
	sandboxes, users attempts
	orphaned         *metrics.Counter
	ephemeral        *metrics.Gauge
	hooks            hookMetrics
}

func newPodMetrics(s *metric.Set) podMetrics {
	return podMetrics{
		desired: s.Gauges("kubelet_desired_pods", "Pods that sources desire on the node.", "static"),
		active:  s.Gauges("kubelet_active_pods", "Pods that hold resources of the node.", "static"),
		rejections: s.Counters("kubelet_admission_rejections_total",
			"Pods rejected, by reason.", "reason"),
		preempted: s.Counters("kubelet_preemptions",
			"Pods ended to make way for a critical one, by the resource that it lacked.",
			"preemption_signal"),
		restarted: s.Counters("kubelet_restarted_pods_total",
			"Pods that were taken away and desired again under the same UID while they ran.",
			"static"),
		containers: s.Counters("kubelet_started_containers_total",
			"Starts of containers.", "container_type"),
		containerErrors: s.Counters("kubelet_started_containers_errors_total",
			"Starts of containers that failed.", "container_type", "code"),
		sandboxes: attempts{
			s.Counter("kubelet_started_pods_total", "Sandboxes made."),
			s.Counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made."),
		},
		users: attempts{
			s.Counter("kubelet_started_user_namespaced_pods_total",
				"Sandboxes made with a user namespace of their own."),
			s.Counter("kubelet_started_user_namespaced_pods_errors_total",
				"Sandboxes with a user namespace of their own that could not be made."),
		},
		orphaned: s.Counter("kubelet_orphaned_runtime_pods_total",
			"Pods that were found in the runtime and that nobody wants; they are ended."),
		ephemeral: s.Gauge("kubelet_managed_ephemeral_containers",
			"Ephemeral containers of the pods that sources desire on the node."),
		hooks: newHookMetrics(s),
	}
}

// expect creates the series of restarted pods before there is one.
func (p podMetrics) expect() {
	p.restarted.WithLabelValues("").Add(0)
	p.restarted.WithLabelValues("true").Add(0)
}

// staticLabel returns the label static: "true" or empty, as with the kubelet.
func staticLabel(pod *v1.Pod) string {
	if fromAPI(pod) {
		return ""
	}
	return "true"
}

func fromAPI(pod *v1.Pod) bool {
	return pod.Annotations[podspec.AnnotationSource] == podspec.APISource
}

// Restarted counts a pod that was desired again before its earlier life had ended.
func (m *Metrics) Restarted(pod *v1.Pod) {
	m.pods.restarted.WithLabelValues(staticLabel(pod)).Inc()
}

// Preempted counts a pod that made room for a critical one; that one lacked the resource.
func (m *Metrics) Preempted(resource string) { m.pods.preempted.WithLabelValues(resource).Inc() }

// Pods records the number of desired and of active pods.
func (m *Metrics) Pods(desired, active []*v1.Pod) {
	for vec, list := range map[*metrics.GaugeVec][]*v1.Pod{
		m.pods.desired: desired, m.pods.active: active,
	} {
		count := map[string]int{"": 0, "true": 0}
		for _, pod := range list {
			count[staticLabel(pod)]++
		}
		for label, n := range count {
			vec.WithLabelValues(label).Set(float64(n))
		}
	}
	ephemeral := 0
	for _, pod := range desired {
		ephemeral += len(pod.Spec.EphemeralContainers)
	}
	m.pods.ephemeral.Set(float64(ephemeral))
}

// Started counts a start of a container or, if c is nil, of a pod's sandbox.
func (m *Metrics) Started(pod *v1.Pod, c *v1.Container, err error) {
	if c == nil {
		m.pods.sandboxes.count(err)
		if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
			m.pods.users.count(err)
		}
		return
	}
	kind := "init_container"
	switch _, is := podspec.Find(pod, c.Name); is {
	case podspec.Regular:
		kind = "container"
	case podspec.Ephemeral:
		kind = "ephemeral_container"
	case podspec.Init, podspec.Sidecar:
	}
	m.pods.containers.WithLabelValues(kind).Inc()
	m.volumes.started(pod, c, err)
	if start, ok := errors.AsType[*cri.StartError](err); ok {
		m.pods.containerErrors.WithLabelValues(kind, start.Reason).Inc()
	}
}

func (p podMetrics) rejected(reason string, short v1.ResourceName) {
	p.rejections.WithLabelValues(reasonLabel(reason, short)).Inc()
}

// reasonLabel bounds the values of the label: each extended resource would add one.
func reasonLabel(reason string, short v1.ResourceName) string {
	switch {
	case podspec.IsExtended(short):
		return "OutOfExtendedResources"
	case short != "", reason == cpumanager.ReasonIsolatedShortage,
		reason == allocation.ReasonUnexpected, reason == allocation.ReasonTopology,
		reason == handlers.ReasonSysctl, reason == handlers.ReasonPlacement,
		reason == handlers.ReasonChoice, reason == allocation.ReasonChosen,
		reason == allocation.ReasonOwned, reason == cpumanager.ReasonSMTAlignment,
		reason == podspec.ReasonVolumeLimit:
		return reason
	}
	return "Other"
}
