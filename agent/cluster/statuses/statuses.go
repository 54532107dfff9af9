package statuses

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/metric"
)

// Config configures the writer of statuses.
type Config struct {
	Client   kubernetes.Interface
	Registry metrics.KubeRegistry
	// Tell receives events of pods. Optional.
	Tell func(about runtime.Object, eventType, reason, message string)
	// Published is called with the UID of a pod of the node when the API server has its newest status. It
	// must not block. Optional.
	Published func(types.UID)
}

// Statuses writes the statuses of the node's pods to the API server.
type Statuses struct {
	client    kubernetes.Interface
	published func(types.UID)
	tell      func(about runtime.Object, eventType, reason, message string)
	planner   *Planner
	queue     *requests.Queue[types.UID]
	took      *metrics.Histogram
}

// New returns a Statuses that knows no pods.
func New(c Config) (*Statuses, error) {
	w := &Statuses{client: c.Client, tell: c.Tell, published: c.Published, planner: NewPlanner()}
	if w.published == nil {
		w.published = func(types.UID) {}
	}
	var s metric.Set
	w.took = s.Histogram("kubelet_pod_status_sync_duration_seconds",
		"Seconds from when a pod's status changed until the API server has it.",
		[]float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60})
	w.queue = requests.New("write a pod's status", w.next)
	return w, s.Register(c.Registry)
}

// Run writes until ctx ends.
func (w *Statuses) Run(ctx context.Context) error { return w.queue.Run(ctx) }

// Wrote records a status that was written for a pod of the node. It never blocks.
func (w *Statuses) Wrote(c podstatus.Change) {
	w.planner.Wrote(c, time.Now())
	w.queue.Add(c.Pod.UID)
}

// Saw records all pods that the API server has for the node, including mirror pods. It never
// blocks.
func (w *Statuses) Saw(all []*v1.Pod) {
	for _, uid := range w.planner.Saw(all, time.Now()) {
		w.queue.Add(uid)
	}
}

// poll is the time between two looks at what the API server lacks.
const poll = 20 * time.Millisecond

// Synced waits until the API server has the newest status of each pod that it has. It reports
// whether it has them; if ctx ends first it may not.
func (w *Statuses) Synced(ctx context.Context) bool {
	for w.planner.lacks() {
		if !await.For(ctx, poll) {
			return false
		}
	}
	return true
}

// IsPublished reports whether the API server has the newest status of a pod of the node, or nothing to have
// it.
func (w *Statuses) IsPublished(uid types.UID) bool { return w.planner.isPublished(uid) }

// next sends the next request about a pod.
func (w *Statuses) next(ctx context.Context, uid types.UID) (made requests.Verb,
	again time.Time, err error) {
	q, again := w.planner.Next(uid, time.Now())
	if q.Verb == requests.None {
		w.news(uid)
		return requests.None, again, nil
	}
	klog.FromContext(ctx).V(2).Info("Sending a request about a pod", "pod", klog.KObj(q.Pod),
		"podUID", q.Pod.UID, "verb", q.Verb, "phase", q.Status.Phase)
	got, err := w.request(ctx, q)
	out, retry := w.planner.Answered(uid, q, got, err, time.Now())
	if out.Took > 0 {
		w.took.Observe(out.Took.Seconds())
	}
	w.report(ctx, q.Pod, out, err)
	w.news(uid)
	return q.Verb, time.Time{}, retry
}

// news says that the API server has the newest status of a pod, if it has.
func (w *Statuses) news(uid types.UID) {
	if w.IsPublished(uid) {
		w.published(uid)
	}
}

// report says what the API server does not take of a pod's status, and why.
func (w *Statuses) report(ctx context.Context, pod *v1.Pod, out Outcome, why error) {
	log := klog.FromContext(ctx).WithValues("pod", klog.KObj(pod), "podUID", pod.UID)
	switch {
	case out.Accepted:
		log.Info("The API server takes the pod's status as a whole again")
	case out.Refused != "":
		why = requests.Short(why)
		log.Info("The API server refuses the pod's status; it is written without what is left out "+
			"until it changes", "leftOut", out.Refused, "err", why)
		if w.tell != nil {
			w.tell(pod, v1.EventTypeWarning, "PodStatusRefused", fmt.Sprintf(
				"The API server refuses the pod's status: %v. Left out: %s", why, out.Refused))
		}
	}
}

// request sends a request, and returns the pod that the API server then has.
func (w *Statuses) request(ctx context.Context, q Request) (*v1.Pod, error) {
	pods, name := w.client.CoreV1().Pods(q.Pod.Namespace), q.Pod.Name
	switch q.Verb {
	case requests.Get:
		return pods.Get(ctx, name, metav1.GetOptions{})
	case requests.Patch:
		patch, err := q.patch()
		if err != nil {
			return nil, err
		}
		return pods.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
			"status")
	case requests.Delete:
		return nil, pods.Delete(ctx, name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions: &metav1.Preconditions{
				UID: &q.Pod.UID, ResourceVersion: &q.Pod.ResourceVersion}})
	default:
		panic(fmt.Sprintf("statuses: verb %q", q.Verb))
	}
}

// patch returns a strategic merge patch that applies only to this UID and version.
func (q Request) patch() ([]byte, error) {
	patch, err := requests.StrategicPatch(v1.Pod{Status: q.Pod.Status},
		v1.Pod{Status: q.Status, ObjectMeta: metav1.ObjectMeta{
			UID: q.Pod.UID, ResourceVersion: q.Pod.ResourceVersion,
		}})
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s: %w", q.Pod.UID, err)
	}
	return patch, nil
}
