package podworker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// Config is what workers need. Actuator, Report and Gone are required.
type Config struct {
	Actuator Actuator
	// Report receives every round's outcome, before its action is done; Gone, once, that nothing is
	// left of a pod that was to be removed and that its worker has ended: an Update after
	// it begins anew. Both are called from the pod's goroutine, one after the other for one pod,
	// and must not block.
	Report func(Report)
	Gone   func(types.UID)
	// Due is when the volumes of a pod that runs are to be brought up to date, which may be past;
	// zero: not now. A nil function: never.
	Due func(pod *v1.Pod, now time.Time) time.Time
	// Probed is what the probes of a pod's containers have found, by container id; nil: nothing is
	// ever probed.
	Probed func(types.UID) map[string]status.Probed
	// HooksPending are the attempts, by container, whose postStart hooks an earlier run of the agent
	// did not bring to an end; nil: there are none.
	HooksPending func(*v1.Pod) map[string]uint32
	// Attempt is the one that a container is to be of which the runtime has no record, as statuses
	// and logs tell of those before; nil: the first.
	Attempt func(pod *v1.Pod, container string) uint32

	BackOff BackOff // zero fields: the defaults
	Keep    Retention
	// Retry is the least time between tries of a failing action, Sync between looks at a pod that
	// nothing is to be done for. Both are lengthened by up to a half at random; 0: default.
	Retry, Sync time.Duration
}

// Retention says which records of containers that have exited stay while their pod runs.
type Retention struct {
	// Dead is how many of each container stay beside its newest record, at least 1; negative: all.
	Dead int
	// Age is the least age of those that go, from when they were created.
	Age time.Duration
}

// Workers runs one worker for each pod.
//
// Pods of the same namespace and name run one at a time, in the order in which they arrived. A static
// one waits for no pod of the API server, which anybody might have made, nor that for it.
type Workers struct {
	cfg              Config
	starts, restarts *startLimiter
	// added wakes Run when a worker waits for its goroutine; capacity 1.
	added chan struct{}

	mu   sync.Mutex // guards what follows, and the workers' own fields
	pods map[types.UID]*worker
	come int // how many there have been
	// queues have the pods that have not finished in order of arrival.
	queues map[queue][]types.UID
}

// queue is what pods stand in that run one at a time.
type queue struct {
	types.NamespacedName
	static bool
}

// New returns workers that begin to work with Run.
func New(cfg Config) *Workers {
	cfg.Retry = cmp.Or(cfg.Retry, DefaultRetry)
	cfg.Sync = cmp.Or(cfg.Sync, DefaultSync)
	cfg.BackOff = cfg.BackOff.withDefaults()
	return &Workers{
		cfg:    cfg,
		starts: newStartLimiter(leastPlaces), restarts: newStartLimiter(restartPlaces),
		added:  make(chan struct{}, 1),
		pods:   map[types.UID]*worker{},
		queues: map[queue][]types.UID{},
	}
}

// Run works until ctx ends and every worker has returned. Pods stay as they are then: ending
// the agent does not end a container.
func (w *Workers) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range []*startLimiter{w.starts, w.restarts} {
		running.Go(func() { s.run(ctx) })
	}
	for {
		for _, p := range w.takeNew() {
			log := klog.LoggerWithValues(klog.FromContext(ctx), "pod", p.queue.NamespacedName, "podUID", p.uid)
			running.Go(func() { w.work(klog.NewContext(ctx, log), p) })
		}
		if !await.On(ctx, w.added) {
			return nil
		}
	}
}

// Update says what is desired of a pod now. It never blocks; of several updates before the worker
// looks, the last counts, but a stop stays a stop and its grace only shrinks: until the pod is gone
// an update without a stop is ignored.
func (w *Workers) Update(d Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.pods[d.Pod.UID]
	if !ok {
		w.addLocked(d)
		return
	}
	p.updateLocked(d)
}

// Hasten is an Update with a stop for a pod that is being removed: its grace may be a shorter one.
// Unlike Update it does not begin with a worker, since the pod may be gone.
func (w *Workers) Hasten(d Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[d.Pod.UID]; ok {
		p.updateLocked(d)
	}
}

// Wake makes the pod's worker look at the pod; no worker, nothing happens.
func (w *Workers) Wake(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[uid]; ok {
		p.wakeUp()
	}
}

// Retry is Wake, and what failed for want of an object of the API server (cri.ObjectError) is tried
// again at once.
func (w *Workers) Retry(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[uid]; ok {
		p.retry = true
		p.wakeUp()
	}
}

// Known are the pods that have a worker, sorted.
func (w *Workers) Known() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.pods))
}

func (w *Workers) addLocked(d Desired) {
	w.come++
	p := &worker{
		arrival: w.come,
		uid:     d.Pod.UID,
		queue:   queue{podspec.Name(d.Pod), podspec.IsStatic(d.Pod)},
		wake:    make(chan struct{}, 1),
		desired: d,
	}
	w.pods[p.uid] = p
	w.queues[p.queue] = append(w.queues[p.queue], p.uid)
	await.Wake(w.added)
}

// takeNew are the workers that have no goroutine yet; the caller gives them one.
func (w *Workers) takeNew() []*worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*worker
	for _, p := range w.pods {
		if !p.running {
			p.running = true
			out = append(out, p)
		}
	}
	return out
}

// behind is the pod that must finish before p may start; empty: none.
func (w *Workers) behindLocked(p *worker) types.UID {
	all := w.queues[p.queue]
	if len(all) == 0 || all[0] == p.uid {
		return ""
	}
	return all[0]
}

// leaveQueue lets the next pod of that name start.
func (w *Workers) leaveQueue(p *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveQueueLocked(p)
}

func (w *Workers) leaveQueueLocked(p *worker) {
	left := slices.DeleteFunc(w.queues[p.queue], func(uid types.UID) bool { return uid == p.uid })
	if len(left) == 0 {
		delete(w.queues, p.queue)
		return
	}
	w.queues[p.queue] = left
	if next, ok := w.pods[left[0]]; ok {
		next.wakeUp()
	}
}

// remove drops the worker of a pod that is gone.
func (w *Workers) remove(p *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, p.uid)
	w.leaveQueueLocked(p)
}
