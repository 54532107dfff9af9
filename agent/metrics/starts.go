package metrics

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/metric"
)

// startBuckets and pullBuckets are the kubelet's, in seconds.
var (
	startBuckets = []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360,
		480, 600, 900, 1200, 1800, 2700, 3600}
	pullBuckets = []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200,
		1800, 2700, 3600}
)

// starts measure how long pods take to start: from when they were first seen here, which of a
// static pod is its creation, until they run. Those that have a sandbox when their worker starts
// are of an earlier run of the agent, and start no more.
type starts struct {
	running, sli, total, worker *metrics.Histogram
	pulls                       *metrics.HistogramVec

	mu   sync.Mutex // guards what follows
	pods map[types.UID]*start
}

// start is that of a pod of which not all containers have run yet.
type start struct {
	seen    time.Time
	pulling time.Duration
	running bool
}

func newStarts(s *metric.Set) *starts {
	return &starts{
		running: s.Histogram("kubelet_pod_start_duration_seconds",
			"Seconds from when a pod was first seen until it runs.", startBuckets),
		sli: s.Histogram("kubelet_pod_start_sli_duration_seconds",
			"Seconds from when a pod was first seen until all its containers run, without the "+
				"time to pull images and to run init containers; of pods without volumes that "+
				"outlive them.", startBuckets),
		total: s.Histogram("kubelet_pod_start_total_duration_seconds",
			"Seconds from when a pod was first seen until all its containers run.", startBuckets),
		worker: s.Histogram("kubelet_pod_worker_start_duration_seconds",
			"Seconds from when a pod was first seen until its worker starts.", metrics.DefBuckets),
		pulls: s.Histograms("kubelet_image_pull_duration_seconds",
			"Seconds to pull an image, with the time it waited for its turn, by its size.",
			pullBuckets, "image_size_in_bytes"),
		pods: map[types.UID]*start{},
	}
}

// Status takes another status of a pod.
func (m *Metrics) Status(c podstatus.Change) { m.starts.status(c, time.Now()) }

func (s *starts) status(c podstatus.Change, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, known := s.pods[c.Pod.UID]
	switch {
	case c.Begins():
		s.pods[c.Pod.UID] = &start{seen: now}
	case !known:
	case c.Ends(), status.Ended(c.After.Phase):
		delete(s.pods, c.Pod.UID)
	default:
		s.followLocked(c, pod, now.Sub(pod.seen))
	}
}

func (s *starts) followLocked(c podstatus.Change, pod *start, took time.Duration) {
	if c.After.Phase == v1.PodRunning && !pod.running {
		pod.running = true
		s.running.Observe(took.Seconds())
	}
	if !allRun(c) {
		return
	}
	delete(s.pods, c.Pod.UID)
	s.total.Observe(took.Seconds())
	if !stateful(c.Pod) {
		s.sli.Observe(max(0, took-pod.pulling-initializing(c.After)).Seconds())
	}
}

func allRun(c podstatus.Change) bool {
	for _, s := range c.After.ContainerStatuses {
		if s.State.Running == nil || s.State.Running.StartedAt.IsZero() {
			return false
		}
	}
	return len(c.After.ContainerStatuses) == len(c.Pod.Spec.Containers)
}

// initializing is how long the init containers ran, in the whole seconds of a status.
func initializing(s v1.PodStatus) (took time.Duration) {
	for _, c := range s.InitContainerStatuses {
		if e := c.State.Terminated; e != nil {
			took += max(0, e.FinishedAt.Sub(e.StartedAt.Time))
		}
	}
	return took
}

// stateful reports whether the pod has a volume that outlives it: the indicator is of other pods.
func stateful(pod *v1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil &&
			v.Projected == nil {
			return true
		}
	}
	return false
}

// began measures that the pod's worker has started, and sees whether the pod ran before.
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

// Pulled takes that an image was pulled for a pod.
func (m *Metrics) Pulled(p cri.Pull) {
	s := m.starts
	s.pulls.WithLabelValues(sizeLabel(p.Size)).Observe(p.Took.Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod, known := s.pods[p.Pod]; known {
		pod.pulling += p.Took
	}
}

// sizeLabel is the range that an image's size in bytes is in.
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
