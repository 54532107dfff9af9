package metrics

import (
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/podspec"
)

// startBuckets and pullBuckets are the kubelet's, in seconds.
var (
	startBuckets = []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360,
		480, 600, 900, 1200, 1800, 2700, 3600}
	pullBuckets = []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200,
		1800, 2700, 3600}
)

// starts measures how long pods take to start: from the time they were first seen until they run,
// and from their creation until all their containers run and, for pods of the API server, until the
// API server delivers that. A static pod counts as created when it is first seen. Pods that have a
// sandbox when their worker starts belong to an earlier run of the agent and are not measured.
type starts struct {
	running, sli, total, worker *metrics.Histogram
	first                       *metrics.Gauge
	pulls                       *metrics.HistogramVec
	asked                       *metrics.CounterVec

	mu      sync.Mutex // guards the fields below
	pods    map[types.UID]*start
	network bool // a pod with a network of its own has started
}

// start is the start of a pod whose containers have not all run yet.
type start struct {
	seen, created time.Time
	pulling       time.Duration
	running       bool
	// ran is set when all containers have run; the API server has yet to deliver that.
	ran bool
}

func newStarts(s *metric.Set) *starts {
	return &starts{
		running: s.Histogram("kubelet_pod_start_duration_seconds",
			"Seconds from when a pod was first seen until it runs.", startBuckets),
		sli: s.Histogram("kubelet_pod_start_sli_duration_seconds",
			"Seconds from when a pod was created until all its containers run, without the "+
				"time to pull images and to run init containers; of pods without volumes that "+
				"outlive them.", startBuckets),
		total: s.Histogram("kubelet_pod_start_total_duration_seconds",
			"Seconds from when a pod was created until all its containers run.", startBuckets),
		first: s.Gauge("kubelet_first_network_pod_start_sli_duration_seconds",
			"Seconds that the first pod with a network of its own took to start, without the time "+
				"to pull images and to run init containers."),
		worker: s.Histogram("kubelet_pod_worker_start_duration_seconds",
			"Seconds from when a pod was first seen until its worker starts.", metrics.DefBuckets),
		pulls: s.Histograms("kubelet_image_pull_duration_seconds",
			"Seconds to pull an image, with the time it waited for its turn, by its size.",
			pullBuckets, "image_size_in_bytes"),
		asked: s.Counters("kubelet_image_manager_ensure_image_requests_total",
			"How often an image was asked for, by pull policy, whether it was there, and whether it "+
				"was to be pulled.", "pull_policy", "present_locally", "pull_required"),
		pods: map[types.UID]*start{},
	}
}

// Status records the next status of a pod.
func (m *Metrics) Status(c podstatus.Change) {
	m.starts.status(c, time.Now())
	countEnds(m.ends, c)
	m.resizes.status(c)
}

func (s *starts) status(c podstatus.Change, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, known := s.pods[c.Pod.UID]
	switch {
	case c.Begins() && c.After.Phase != v1.PodPending: // it started earlier, and was measured then
	case c.Begins():
		s.pods[c.Pod.UID] = &start{seen: now, created: now}
		if at := c.Pod.CreationTimestamp; fromAPI(c.Pod) && !at.IsZero() {
			s.pods[c.Pod.UID].created = at.Time
		}
	case !known:
	case c.Ends(), podspec.Ended(c.After.Phase):
		delete(s.pods, c.Pod.UID)
	default:
		s.followLocked(c, pod, now)
	}
}

func (s *starts) followLocked(c podstatus.Change, pod *start, now time.Time) {
	if c.After.Phase == v1.PodRunning && !pod.running {
		pod.running = true
		s.running.Observe(now.Sub(pod.seen).Seconds())
	}
	switch {
	case !allRun(c.Pod, c.After):
	case fromAPI(c.Pod):
		pod.ran = true
	default:
		s.startedLocked(c.Pod, c.After, now)
	}
}

// startedLocked records that a pod has started, by its status.
func (s *starts) startedLocked(pod *v1.Pod, as v1.PodStatus, now time.Time) {
	start := s.pods[pod.UID]
	delete(s.pods, pod.UID)
	took := now.Sub(start.created)
	s.total.Observe(took.Seconds())
	own := max(0, took-start.pulling-initializing(as)).Seconds()
	if !stateful(pod) {
		s.sli.Observe(own)
	}
	if !s.network && !pod.Spec.HostNetwork {
		s.network = true
		s.first.Set(own)
	}
}

// Delivered records the pods that the API server delivers: a pod of its counts as started when
// others see it.
func (m *Metrics) Delivered(all []*v1.Pod) { m.starts.delivered(all, time.Now()) }

func (s *starts) delivered(all []*v1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range all {
		if start := s.pods[pod.UID]; start != nil && start.ran && allRun(pod, pod.Status) {
			s.startedLocked(pod, pod.Status, now)
		}
	}
}

func allRun(pod *v1.Pod, as v1.PodStatus) bool {
	for _, s := range as.ContainerStatuses {
		if s.State.Running == nil || s.State.Running.StartedAt.IsZero() {
			return false
		}
	}
	return len(as.ContainerStatuses) == len(pod.Spec.Containers)
}

// initializing returns how long the init containers ran, in the whole seconds of a status.
func initializing(s v1.PodStatus) (took time.Duration) {
	for _, c := range s.InitContainerStatuses {
		if e := c.State.Terminated; e != nil {
			took += max(0, e.FinishedAt.Sub(e.StartedAt.Time))
		}
	}
	return took
}

// stateful reports whether the pod has a volume that outlives it: the SLI excludes such pods.
func stateful(pod *v1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil &&
			v.Projected == nil {
			return true
		}
	}
	return false
}

// began measures the start of the pod's worker, and drops pods that ran before.
func (s *starts) began(first podworker.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, known := s.pods[first.Pod.UID]
	if !known {
		return
	}
	s.worker.Observe(first.Begun.Sub(pod.seen).Seconds())
	if len(first.Observed.Sandboxes) > 0 {
		delete(s.pods, first.Pod.UID)
	}
}

// Pulled records that an image was pulled for a pod.
func (m *Metrics) Pulled(p cri.Pull) {
	s := m.starts
	s.pulls.WithLabelValues(sizeLabel(p.Size)).Observe(p.Took.Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod, known := s.pods[p.Pod]; known {
		pod.pulling += p.Took
	}
}

// Asked records a request for an image.
func (m *Metrics) Asked(a cri.Asked) {
	known := func(b *bool) string {
		if b == nil {
			return "unknown"
		}
		return strconv.FormatBool(*b)
	}
	m.starts.asked.WithLabelValues(strings.ToLower(string(a.Policy)), known(a.Present),
		known(a.Pull)).Inc()
}

// sizeLabel returns the range of an image's size in bytes.
func sizeLabel(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	if size == 0 {
		return "N/A"
	}
	for _, r := range []struct {
		most  uint64
		label string
	}{
		{10 * mb, "0-10MB"}, {100 * mb, "10MB-100MB"}, {500 * mb, "100MB-500MB"},
		{gb, "500MB-1GB"}, {5 * gb, "1GB-5GB"}, {10 * gb, "5GB-10GB"}, {20 * gb, "10GB-20GB"},
		{30 * gb, "20GB-30GB"}, {40 * gb, "30GB-40GB"}, {60 * gb, "40GB-60GB"},
		{100 * gb, "60GB-100GB"},
	} {
		if size <= r.most {
			return r.label
		}
	}
	return "GT100GB"
}
