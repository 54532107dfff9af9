package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// staleAfter: the node is unhealthy if the runtime has not been listed for so long (the kubelet's
// PLEG threshold).
const staleAfter = 3 * time.Minute

// Runtime is a runtime as the PLEG needs it; *cri.Client is one.
type Runtime interface {
	// Pods lists all pods with ids and states only, cheaply.
	Pods(ctx context.Context) ([]cri.Pod, error)
	// Refresh reads one pod in full. It copies from last what cannot have changed.
	Refresh(ctx context.Context, last cri.Pod) (cri.Pod, error)
	// Recheck reads the containers of last that had not exited and those in made, and copies the
	// rest from last.
	Recheck(ctx context.Context, last cri.Pod, made cri.Made) (cri.Pod, error)
	// Events calls fn for each event until the stream ends, and returns why it did.
	Events(ctx context.Context, connected func(), fn func(cri.Event)) error
}

// relistWithEvents is the least time between relists while there is an event stream.
const relistWithEvents = 10 * time.Second

// Config configures a PLEG.
type Config struct {
	Client Runtime
	// RelistPeriod is the time between relists without events, by default 1 s.
	RelistPeriod time.Duration
	// ReadTimeout bounds the read of one pod, by default 30 s. Readers is the number of reads at
	// the same time for events and relists, by default 4.
	ReadTimeout time.Duration
	Readers     int
	// Registry may be nil: nothing is measured.
	Registry metrics.KubeRegistry
}

// PLEG, the pod lifecycle event generator, keeps the newest observation of each pod. All methods
// are safe for concurrent use.
type PLEG struct {
	cfg      Config
	cache    *cache
	schedule *schedule
	reads    *asks
	changed  workqueue.TypedInterface[types.UID] // pods to announce on changes
	changes  chan types.UID
	endings  *endings
	later    *later
	metrics  *measures
	first    *initialSync
}

// New returns a PLEG without observations; Run fills it.
func New(cfg Config) (*PLEG, error) {
	if cfg.Client == nil {
		return nil, errors.New("PLEG: no runtime client")
	}
	cfg.RelistPeriod = cmp.Or(cfg.RelistPeriod, time.Second)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, 30*time.Second)
	cfg.Readers = cmp.Or(cfg.Readers, 4)
	p := &PLEG{
		cfg:      cfg,
		cache:    newCache(),
		schedule: newSchedule(cfg.RelistPeriod, max(relistWithEvents, cfg.RelistPeriod)),
		reads:    newAsks(),
		changed:  workqueue.NewTyped[types.UID](),
		changes:  make(chan types.UID),
		endings:  newEndings(),
		later:    newLater(),
		metrics:  newMeasures(),
		first:    newInitialSync(),
	}
	if err := p.metrics.Register(cfg.Registry); err != nil {
		return nil, err
	}
	return p, nil
}

// Run observes until ctx ends.
func (p *PLEG) Run(ctx context.Context) error {
	defer p.schedule.end()
	g, ctx := errgroup.WithContext(ctx)
	loops := []func(context.Context){p.relistLoop, p.eventLoop, p.changesLoop, p.later.run}
	for range p.cfg.Readers {
		loops = append(loops, p.readLoop)
	}
	for _, loop := range loops {
		g.Go(func() error {
			loop(ctx)
			return nil
		})
	}
	return g.Wait()
}

// Get returns the newest observation of a pod; false if the runtime is not known to have it.
func (p *PLEG) Get(uid types.UID) (cri.Pod, bool) { return p.cache.get(uid) }

// All returns the newest observation of every pod that the runtime has, ordered by UID.
func (p *PLEG) All() []cri.Pod { return p.cache.all() }

// Changes sends the pods whose observation changed, each change at least once. Changes of a pod
// that was not received yet are one change. A vanished pod is sent once more. The PLEG's own reads
// and Reread both report here, Observe does not.
func (p *PLEG) Changes() <-chan types.UID { return p.changes }

// Synced is closed once the runtime was listed and each pod of that list was read.
func (p *PLEG) Synced() <-chan struct{} { return p.first.complete }

// Healthy returns an error if the runtime has not been listed for three minutes.
func (p *PLEG) Healthy(now time.Time) error {
	last := p.schedule.lastRelist()
	if last.IsZero() {
		return errors.New("pleg has yet to be successful")
	}
	if ago := now.Sub(last); ago > staleAfter {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v", ago, staleAfter)
	}
	return nil
}

// Health publishes when Healthy's answer changes.
func (p *PLEG) Health() mailbox.Source { return &p.schedule.health }

// Observe reads a pod now, for the worker that acts on it: Changes does not report what it finds.
// The result is at least as new as the call.
func (p *PLEG) Observe(ctx context.Context, uid types.UID) (cri.Pod, error) {
	newest, _, err := p.read(ctx, uid, p.cfg.Client.Refresh)
	return newest, err
}

// Reread reads a pod now, and reports a change on Changes.
func (p *PLEG) Reread(ctx context.Context, uid types.UID) (cri.Pod, error) {
	newest, changed, err := p.read(ctx, uid, p.cfg.Client.Refresh)
	if changed {
		p.changed.Add(uid)
	}
	return newest, err
}

func (p *PLEG) read(ctx context.Context, uid types.UID,
	read func(context.Context, cri.Pod) (cri.Pod, error)) (
	newest cri.Pod, changed bool, err error) {
	r, began := p.cache.begin(uid), time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ReadTimeout)
	defer cancel()
	pod, err := read(ctx, r.last)
	if err != nil {
		p.cache.abort(r)
		p.schedule.hasten()
		return cri.Pod{}, false, err
	}
	p.metrics.podRead.Observe(time.Since(began).Seconds())
	newest, changed = p.cache.commit(r, pod)
	p.first.read(uid)
	if changed {
		p.metrics.count(p.cache)
	}
	return newest, changed, nil
}

// readLoop is one of the readers of pods that events and relists ask for. A pod is read once at a
// time.
func (p *PLEG) readLoop(ctx context.Context) {
	each(ctx, p.reads, func(uid types.UID) { p.readAsked(ctx, uid) })
}

// readAsked reads a pod unless it has been read since the request.
func (p *PLEG) readAsked(ctx context.Context, uid types.UID) {
	asked := p.reads.take(uid)
	if pod, ok := p.cache.get(uid); ok && pod.ReadAt.After(asked) {
		return
	}
	if _, err := p.Reread(ctx, uid); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Pod cannot be read, trying again at the next relist",
			"podUID", uid, "err", err)
	}
}

// changesLoop sends changes one by one; only this goroutine waits for the receiver.
func (p *PLEG) changesLoop(ctx context.Context) {
	each(ctx, p.changed, func(uid types.UID) { await.Send(ctx, p.changes, uid) })
}
