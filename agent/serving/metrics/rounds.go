package metrics

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/internal/metric"
)

// rounds measures the work of pod workers.
type rounds struct {
	took       *metrics.HistogramVec
	containers *metrics.Histogram
	working    *metrics.GaugeVec

	mu   sync.Mutex // guards the fields below
	pods map[types.UID]work
}

// work is the work of one pod worker. All that it does without a pause is one operation, until it
// starts another one: to end the pod, or to clean up.
type work struct {
	pod       *v1.Pod   // the pod in the last round with nothing left to do
	operation string    // under way; empty: none
	begun     time.Time // start of the operation
	place     place
}

// place says where a pod is counted among those with workers.
type place struct{ lifecycle, config, static string }

// The kubelet's labels of working pods.
const (
	desired     = "desired"
	orphan      = "orphan"
	runtimeOnly = "runtime_only"
)

var lifecycles = map[podworker.State]string{
	podworker.SyncPod:        "sync",
	podworker.TerminatingPod: "terminating",
	podworker.TerminatedPod:  "terminated",
	podworker.Finished:       "terminated",
}

func newRounds(s *metric.Set) *rounds {
	return &rounds{
		took: s.Histograms("kubelet_pod_worker_duration_seconds",
			"Seconds that a pod's worker was busy, by operation: create, update, sync, kill, "+
				"terminated.", metrics.DefBuckets, "operation_type"),
		containers: s.Histogram("kubelet_containers_per_pod_count",
			"Containers of the pods that were started.", metrics.ExponentialBuckets(1, 2, 5)),
		working: s.Gauges("kubelet_working_pods", "Pods that have a worker, by how far their life "+
			"has come and who wants them; static is unknown of those that only the runtime has.",
			"lifecycle", "config", "static"),
		pods: map[types.UID]work{},
	}
}

// expect creates all series of working pods before there is a pod.
func (r *rounds) expect() {
	for _, lifecycle := range lifecycles {
		for _, static := range []string{"", "true"} {
			r.count(place{lifecycle, desired, static}, 0)
			r.count(place{lifecycle, orphan, static}, 0)
		}
		r.count(place{lifecycle, runtimeOnly, "unknown"}, 0)
	}
}

func (r *rounds) count(p place, n float64) {
	r.working.WithLabelValues(p.lifecycle, p.config, p.static).Add(n)
}

// Round records a round of a pod's worker.
func (m *Metrics) Round(report podworker.Report) {
	if report.Err != nil {
		return
	}
	first := m.rounds.round(report, time.Now())
	switch {
	case first && report.Stop == nil:
		m.starts.began(report)
		m.rounds.containers.Observe(float64(len(report.Pod.Spec.Containers)))
	case first && report.Stop.Orphan && len(report.Observed.Sandboxes) > 0:
		m.pods.orphaned.Inc()
	}
}

func (r *rounds) round(report podworker.Report, now time.Time) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := report.Pod.UID
	was, known := r.pods[uid]
	next := was
	if known {
		r.count(was.place, -1)
	}
	next.place = placeOf(report)
	r.count(next.place, 1)
	if operation := was.next(report); operation != was.operation {
		r.finish(was, report.Begun)
		next.operation, next.begun = operation, report.Begun
	}
	if report.Decision.Action == nil {
		r.finish(next, now)
		next.operation, next.pod = "", report.Pod
	}
	r.pods[uid] = next
	return !known
}

// finish measures the pending operation, if any.
func (r *rounds) finish(w work, now time.Time) {
	if w.operation != "" {
		r.took.WithLabelValues(w.operation).Observe(now.Sub(w.begun).Seconds())
	}
}

// next returns the operation that a round belongs to.
func (w work) next(r podworker.Report) string {
	switch state := r.Decision.State; {
	case state == podworker.TerminatedPod, state == podworker.Finished:
		return "terminated"
	case state == podworker.TerminatingPod:
		return "kill"
	case w.operation != "":
		return w.operation
	case w.pod == nil:
		return "create"
	case w.pod != r.Pod:
		return "update"
	}
	return "sync"
}

func placeOf(r podworker.Report) place {
	p := place{lifecycles[r.Decision.State], desired, staticLabel(r.Pod)}
	switch {
	case r.Stop != nil && r.Stop.Orphan:
		p.config, p.static = runtimeOnly, "unknown"
	case r.Stop != nil && r.Stop.Remove:
		p.config = orphan
	}
	return p
}

// Gone records that a pod no longer has a worker.
func (m *Metrics) Gone(uid types.UID) {
	r := m.rounds
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, known := r.pods[uid]; known {
		r.count(was.place, -1)
		delete(r.pods, uid)
	}
}
