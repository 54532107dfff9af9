package metrics

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/podspec"
)

// resizes counts pods whose resources are to change.
type resizes struct {
	infeasible *metrics.CounterVec
	pending    *metrics.GaugeVec
	inProgress *metrics.Gauge
	history    *resizeHistory
}

func newResizes(s *metric.Set) resizes {
	return resizes{
		infeasible: s.Counters("kubelet_pod_infeasible_resizes_total",
			"Resizes that the node does not do, by the rule that forbids them.", "reason_detail"),
		pending: s.Gauges("kubelet_pod_pending_resizes",
			"Pods that do not get the resources that they ask for, by reason and priority.", "reason",
			"priority_bucket"),
		inProgress: s.Gauge("kubelet_pod_in_progress_resizes",
			"Pods that were allocated other resources, and do not have them all yet."),
		history: newResizeHistory(s),
	}
}

// refused counts a resize that the node does not do, once.
func (z resizes) refused(r report.Result) {
	if r.Rule != "" && !r.Reworded {
		z.infeasible.WithLabelValues(r.Rule).Inc()
	}
}

// status counts by the conditions of pods.
func (z resizes) status(c podstatus.Change) {
	was, is := resizing(c.Before), resizing(c.After)
	bucket := priorityBucket(c.Pod)
	if was.pending != is.pending {
		if was.pending != "" {
			z.pending.WithLabelValues(was.pending, bucket).Dec()
		}
		if is.pending != "" {
			z.pending.WithLabelValues(is.pending, bucket).Inc()
		}
	}
	switch {
	case is.inProgress && !was.inProgress:
		z.inProgress.Inc()
	case was.inProgress && !is.inProgress:
		z.inProgress.Dec()
	}
}

// resizeState holds the resize conditions of a pod status.
type resizeState struct {
	pending    string // the reason in small letters; "": it says of none
	inProgress bool
}

func resizing(s v1.PodStatus) (out resizeState) {
	for _, c := range s.Conditions {
		switch c.Type {
		case v1.PodResizePending:
			out.pending = strings.ToLower(c.Reason)
		case v1.PodResizeInProgress:
			out.inProgress = true
		}
	}
	return out
}

// priorityBucket returns the kubelet's label of a pod's priority.
func priorityBucket(p *v1.Pod) string {
	priority := int32(0)
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	switch {
	case priority >= podspec.CriticalPriority:
		return "system-critical"
	case priority >= 100000:
		return "high"
	case priority > 0:
		return "medium"
	case priority == 0:
		return "normal"
	case priority > -1000:
		return "low"
	default:
		return "very-low"
	}
}
