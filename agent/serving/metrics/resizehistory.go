package metrics

import (
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/podspec"
)

// resizeHistory counts what is asked of pods that were admitted, and measures how long that takes.
type resizeHistory struct {
	requested, accepted *metrics.CounterVec
	waited, took        *metrics.HistogramVec

	mu   sync.Mutex                   // guards pods
	pods map[types.UID]resizeUnderway // those of which a resize is deferred or in progress
}

// resizeUnderway says since when a pod waits; zero: it does not.
type resizeUnderway struct{ deferred, begun time.Time }

// How a deferred resize ends, in the kubelet's words.
const (
	resizeAccepted   = "accepted"
	resizeReverted   = "reverted"
	resizeTerminated = "terminated"
)

// The kubelet's buckets.
var (
	resizeBuckets = []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000,
		600000}
	deferredBuckets = []float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}
)

func newResizeHistory(s *metric.Set) *resizeHistory {
	return &resizeHistory{
		requested: s.Counters("kubelet_container_requested_resizes_total",
			"Changes of requests and limits that were asked for, of each container and resource by itself.",
			"resource", "requirement", "operation"),
		accepted: s.Counters("kubelet_pod_deferred_accepted_resizes_total",
			"Deferred resizes that pods got later, by what had them decided on again.", "retry_trigger"),
		waited: s.Histograms("kubelet_pod_deferred_resize_duration_seconds",
			"Seconds that a resize was deferred, by how that ended and priority.", deferredBuckets,
			"resolution", "priority_bucket"),
		took: s.Histograms("kubelet_pod_resize_duration_milliseconds",
			"Milliseconds until what runs of a pod has what it was allocated, or cannot have it.", resizeBuckets,
			"success"),
		pods: map[types.UID]resizeUnderway{},
	}
}

// Stepped counts by the records of pods.
func (m *Metrics) Stepped(was, is pod.Record, e pod.Event) {
	m.resizes.history.stepped(was, is, e, time.Now())
}

func (h *resizeHistory) stepped(was, is pod.Record, e pod.Event, now time.Time) {
	if was.State == pod.None {
		return
	}
	if was.State == pod.Running && is.Pod != nil && pod.Same(was.Pod, is.Pod) {
		h.ask(was.Shown(), is.Shown())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	uid := was.Pod.UID
	z := h.pods[uid]
	z.deferred = h.deferral(z.deferred, step{was, is, e}, now)
	z.begun = h.progress(z.begun, step{was, is, e}, now)
	if h.pods[uid] = z; z == (resizeUnderway{}) {
		delete(h.pods, uid)
	}
}

// step is one of a pod's record.
type step struct {
	was, is pod.Record
	pod.Event
}

// ends reports whether nobody asks about resizes of the pod any more. The condition of one that is being
// ended stays until then.
func (s step) ends() bool { return s.is.State != pod.Running && s.is.State != pod.Terminating }

// begins reports whether the pod was admitted, perhaps again after a restart of the agent.
func (s step) begins() bool {
	return s.Kind == pod.Admitted && s.was.State == pod.Deciding && s.is.State == pod.Running
}

// deferral returns since when the pod's resize is deferred after a step.
func (h *resizeHistory) deferral(since time.Time, s step, now time.Time) time.Time {
	bucket := priorityBucket(s.was.Pod)
	end := func(how string) time.Time {
		h.waited.WithLabelValues(how, bucket).Observe(now.Sub(since).Seconds())
		return time.Time{}
	}
	switch pending := s.is.Resize.Pending.Reason; {
	case s.begins() && s.is.Wanted != nil:
		return deferredBefore(s.is.Wanted)
	case since.IsZero() && pending == v1.PodReasonDeferred && !s.ends():
		return now
	case since.IsZero():
		return time.Time{}
	case s.Kind == pod.Resized && s.is.Pod != s.was.Pod:
		h.accepted.WithLabelValues(s.Trigger).Inc()
		return end(resizeAccepted)
	case s.ends():
		return end(resizeTerminated)
	case s.is.Wanted == nil:
		return end(resizeReverted)
	case pending == v1.PodReasonInfeasible: // as with the kubelet, this is none of the ways to end
		return time.Time{}
	}
	return since // also while something else is asked for and was not decided on
}

// deferredBefore returns since when the API server has the pod's resize deferred; zero: it does not.
func deferredBefore(p *v1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending && c.Reason == v1.PodReasonDeferred {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// progress returns since when the pod is being given what it was allocated after a step. The kubelet measures
// its calls; here containers that are started anew count too, and an error counts once, however often it is met.
func (h *resizeHistory) progress(since time.Time, s step, now time.Time) time.Time {
	switch {
	case s.is.State != pod.Running:
		return time.Time{}
	case s.Kind == pod.Resized, s.begins() && s.is.Resize.InProgress:
		return now
	case s.Kind == pod.Settled && s.was.Resize != s.is.Resize && !since.IsZero():
		done := !s.is.Resize.InProgress
		h.took.WithLabelValues(strconv.FormatBool(done)).Observe(float64(now.Sub(since).Milliseconds()))
		if done {
			return time.Time{}
		}
	}
	return since
}

// ask counts what containers are to have instead.
func (h *resizeHistory) ask(before, now *v1.Pod) {
	if before == now {
		return
	}
	for c := range podspec.Containers(now) {
		was, _ := podspec.Find(before, c.Name)
		if was == nil {
			continue
		}
		for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
			h.count(name, "requests", was.Resources.Requests[name], c.Resources.Requests[name])
			h.count(name, "limits", was.Resources.Limits[name], c.Resources.Limits[name])
		}
	}
}

func (h *resizeHistory) count(name v1.ResourceName, requirement string, was, is resource.Quantity) {
	operation := ""
	switch d := is.Cmp(was); {
	case d == 0:
		return
	case is.IsZero():
		operation = "remove"
	case was.IsZero():
		operation = "add"
	case d < 0:
		operation = "decrease"
	default:
		operation = "increase"
	}
	h.requested.WithLabelValues(string(name), requirement, operation).Inc()
}
