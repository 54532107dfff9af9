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

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// Config configures workers. Actuator, Report and Gone are required.
type Config struct {
	Actuator Actuator
	// Report receives the outcome of every round before its action is done. Gone is called once,
	// when nothing is left of a removed pod and its worker has ended: a later Update begins again.
	// Both are called from the pod's goroutine and must not block.
	Report func(Report)
	Gone   func(types.UID)
	Known

	// Trace is called before the action of a report, which gets the returned context, and end after
	// it. Optional.
	Trace func(context.Context, Report) (_ context.Context, end func(error))

	BackOff BackOff // zero fields: the defaults
	Keep    Retention
	// Retry is the shortest time between tries of a failing action, Sync the time between looks at
	// a pod with nothing to do. Both are lengthened by up to a half at random; 0: default.
	Retry, Sync time.Duration
}

// Known asks the rest of the agent about pods. Workers ask before each decision.
type Known struct {
	// Due returns the time from which the volumes of a running pod are to be updated, which may be
	// past; zero: not now. A nil function: never.
	Due func(pod *v1.Pod, now time.Time) time.Time
	// Holds reports whether a pod holds resource claims, which are released when it ends. A nil
	// function: no pod does.
	Holds func(types.UID) bool
	// Lost says why nothing of a running pod may stay, such as that its cgroup was removed: it is
	// stopped and made anew, as its restart policy says. "" or a nil function: it may stay.
	Lost func(pod *v1.Pod) string
	// Probed returns the results of the probes of a pod's containers by container id; nil: nothing
	// is probed.
	Probed func(types.UID) map[string]status.Probed
	// Failed says, by container id, why a container has to be stopped whatever its probes say: a device
	// that it has failed. It is started again as one that failed its liveness probe. nil: none has to.
	Failed func(types.UID) map[string]string
	// Had returns what ran of a pod when the agent started; nil: unknown, or nothing ran.
	Had func(types.UID) *podspec.Resources
	// IsPublished reports whether the newest status of a pod is published. When that changes,
	// Workers.Published is called. A nil function: statuses are not published.
	IsPublished func(types.UID) bool
	// HooksPending returns, by container, the attempts whose postStart hooks an earlier run of the
	// agent did not finish; nil: there are none.
	HooksPending func(*v1.Pod) map[string]uint32
	// Attempt returns the next attempt of a container without a record in the runtime, as statuses
	// and logs know the earlier ones; nil: the first.
	Attempt func(pod *v1.Pod, container string) uint32
}

// Retention says which records of containers that have exited stay while their pod runs.
type Retention struct {
	// Dead is the number of records of each container that stay beside its newest one, at least 1;
	// negative: all.
	Dead int
	// Age is the shortest age of a removed record, from its creation.
	Age time.Duration
}

// Workers runs one worker for each pod.
//
// Pods of the same namespace and name run one at a time, in order of arrival. Static pods and API
// pods never wait for each other: any user might have made the API pod.
type Workers struct {
	cfg      Config
	limiters startLimiters
	// added wakes Run when a worker waits for its goroutine; capacity 1.
	added chan struct{}

	mu   sync.Mutex // guards the fields below, and those of workers
	pods map[types.UID]*worker
	come int // workers so far
	// queues holds the unfinished pods in order of arrival.
	queues map[queue][]types.UID
}

// queue identifies pods that run one at a time.
type queue struct {
	types.NamespacedName
	static bool
}

// New returns workers that begin with Run.
func New(cfg Config) *Workers {
	cfg.Retry = cmp.Or(cfg.Retry, DefaultRetry)
	cfg.Sync = cmp.Or(cfg.Sync, DefaultSync)
	cfg.BackOff = cfg.BackOff.withDefaults()
	return &Workers{
		cfg:      cfg,
		limiters: startLimiters{newStartLimiter(leastPlaces), newStartLimiter(restartPlaces)},
		added:    make(chan struct{}, 1),
		pods:     map[types.UID]*worker{},
		queues:   map[queue][]types.UID{},
	}
}

// Run works until ctx ends and every worker has returned. Pods stay as they are: the end of the
// agent ends no container.
func (w *Workers) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range []*startLimiter{w.limiters.starts, w.limiters.restarts} {
		running.Go(func() { s.run(ctx) })
	}
	for {
		for _, p := range w.takeNew() {
			log := klog.LoggerWithValues(klog.FromContext(ctx), "pod", p.queue.NamespacedName,
				"podUID", p.uid)
			running.Go(func() { w.work(klog.NewContext(ctx, log), p) })
		}
		if !await.On(ctx, w.added) {
			return nil
		}
	}
}

// Update sets the desired state of a pod. It never blocks. If several updates come before the
// worker looks, the last one counts, but a stop stays a stop and its grace only shrinks: until the
// pod is gone, an update without a stop is ignored.
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

// Hasten is Update with a stop for a pod that is being removed, whose grace may be shorter now.
// Unlike Update it adds no worker, since the pod may be gone.
func (w *Workers) Hasten(d Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[d.Pod.UID]; ok {
		p.updateLocked(d)
	}
}

// Wake has the pod's worker, if there is one, look at the pod.
func (w *Workers) Wake(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[uid]; ok {
		p.wakeUp()
	}
}

// Published wakes a pod that waits until its newest status is published, and no other: a pod that has
// ended would report its status once more, and that would be published again.
func (w *Workers) Published(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[uid]; ok && p.telling {
		p.wakeUp()
	}
}

// Retry is Wake; actions that failed for lack of an object of the API server (cri.ObjectError) are
// tried again at once.
func (w *Workers) Retry(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[uid]; ok {
		p.retry = true
		p.wakeUp()
	}
}

// Known returns the pods with a worker, sorted.
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

// takeNew returns the workers without a goroutine; the caller starts one for each.
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

// behindLocked returns the pod that must finish before p may start; empty: none.
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
