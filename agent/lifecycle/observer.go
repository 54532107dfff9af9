package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// staleAfter is how long the runtime may go unlisted before the node is unhealthy (the kubelet's
// PLEG threshold).
const staleAfter = 3 * time.Minute

// Runtime is what the observer asks of a runtime; *cri.Client is one.
type Runtime interface {
	// Pods lists all pods with ids and states only, cheaply.
	Pods(ctx context.Context) ([]cri.Pod, error)
	// Refresh reads one pod in full, taking what cannot have changed from last.
	Refresh(ctx context.Context, last cri.Pod) (cri.Pod, error)
	// Recheck asks for the containers of last that had not exited and for what was made since, and
	// takes the rest from last.
	Recheck(ctx context.Context, last cri.Pod, made cri.Made) (cri.Pod, error)
	// Events calls fn for each event until the stream ends, and returns why it did.
	Events(ctx context.Context, connected func(), fn func(cri.Event)) error
}

// Config is what an Observer needs.
type Config struct {
	Client Runtime
	// RelistPeriod is the time between relists without events, by default 1 s;
	// RelistWithEvents with them, by default 10 s.
	RelistPeriod     time.Duration
	RelistWithEvents time.Duration
	// ReadTimeout bounds reading one pod, by default 30 s. Readers is how many pods are read at
	// once because of events and relists, by default 4.
	ReadTimeout time.Duration
	Readers     int
	// Registry may be nil: nothing is measured.
	Registry metrics.KubeRegistry
}

// Observer keeps the newest observation of each pod. All methods are safe for concurrent use.
type Observer struct {
	cfg      Config
	cache    *cache
	schedule *schedule
	reads    *queue // pods to read
	changed  *queue // pods to tell about
	changes  chan types.UID
	endings  *endings
	later    *later
	metrics  *measures
	first    *firstPicture
	counting sync.Mutex // of metrics: older counts never come last
}

// New returns an Observer that knows nothing yet; Run makes it look.
func New(cfg Config) (*Observer, error) {
	if cfg.Client == nil {
		return nil, errors.New("lifecycle observer: no runtime client")
	}
	cfg.RelistPeriod = cmp.Or(cfg.RelistPeriod, time.Second)
	cfg.RelistWithEvents = max(cmp.Or(cfg.RelistWithEvents, 10*time.Second), cfg.RelistPeriod)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, 30*time.Second)
	cfg.Readers = cmp.Or(cfg.Readers, 4)
	o := &Observer{
		cfg:      cfg,
		cache:    newCache(),
		schedule: newSchedule(cfg.RelistPeriod, cfg.RelistWithEvents),
		reads:    newQueue(),
		changed:  newQueue(),
		changes:  make(chan types.UID),
		endings:  newEndings(),
		later:    newLater(),
		metrics:  newMeasures(),
		first:    newFirstPicture(),
	}
	if err := o.metrics.Register(cfg.Registry); err != nil {
		return nil, err
	}
	return o, nil
}

// Run observes until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	defer o.schedule.end()
	g, ctx := errgroup.WithContext(ctx)
	for _, loop := range []func(context.Context){
		o.relistLoop, o.eventLoop, o.readLoop, o.tellLoop, o.later.run,
	} {
		g.Go(func() error {
			loop(ctx)
			return nil
		})
	}
	return g.Wait()
}

// Get is the newest observation of a pod; false when the runtime has nothing of it as far as is
// known.
func (o *Observer) Get(uid types.UID) (cri.Pod, bool) { return o.cache.get(uid) }

// All is the newest observation of every pod that the runtime has, ordered by UID.
func (o *Observer) All() []cri.Pod { return o.cache.all() }

// Changes says which pods to Get again, each change once or more, never not. Changes of a pod that
// nobody has received yet are one change. A vanished pod changes once more. The observer's own
// reads and Reread both report here, Observe does not.
func (o *Observer) Changes() <-chan types.UID { return o.changes }

// Synced is closed once the runtime was listed and each pod of that list was read.
func (o *Observer) Synced() <-chan struct{} { return o.first.complete }

// Healthy is an error when the runtime has not been listed for three minutes.
func (o *Observer) Healthy(now time.Time) error {
	last := o.schedule.lastRelist()
	if last.IsZero() {
		return errors.New("pleg has yet to be successful")
	}
	if ago := now.Sub(last); ago > staleAfter {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v", ago, staleAfter)
	}
	return nil
}

// Health is published when Healthy has another answer.
func (o *Observer) Health() mailbox.Source { return &o.schedule.health }

// Observe reads a pod now, for the one who acts on it and whom Changes would tell. What it returns
// is at least as new as the call.
func (o *Observer) Observe(ctx context.Context, uid types.UID) (cri.Pod, error) {
	newest, _, err := o.read(ctx, uid, o.cfg.Client.Refresh)
	return newest, err
}

// Reread is Observe for everybody else.
func (o *Observer) Reread(ctx context.Context, uid types.UID) (cri.Pod, error) {
	newest, changed, err := o.read(ctx, uid, o.cfg.Client.Refresh)
	if changed {
		o.changed.add(uid, time.Now())
	}
	return newest, err
}

func (o *Observer) read(ctx context.Context, uid types.UID,
	read func(context.Context, cri.Pod) (cri.Pod, error)) (
	newest cri.Pod, changed bool, err error) {
	r, began := o.cache.begin(uid), time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.cfg.ReadTimeout)
	defer cancel()
	pod, err := read(ctx, r.last)
	if err != nil {
		o.cache.abort(r)
		o.schedule.soon()
		return cri.Pod{}, false, err
	}
	o.metrics.podRead.Observe(time.Since(began).Seconds())
	newest, changed = o.cache.commit(r, pod)
	o.first.read(uid)
	if changed {
		o.count()
	}
	return newest, changed, nil
}

// count brings the metrics up to date.
func (o *Observer) count() {
	o.counting.Lock()
	defer o.counting.Unlock()
	o.metrics.pods(o.cache.counts())
}

// readLoop reads the pods that events and relists ask for, some at a time, each one by one.
func (o *Observer) readLoop(ctx context.Context) {
	var readers errgroup.Group
	readers.SetLimit(o.cfg.Readers)
	for {
		uid, asked, ok := o.reads.take()
		if !ok {
			if !await.On(ctx, o.reads.wake) {
				_ = readers.Wait() // readers return no errors
				return
			}
			continue
		}
		readers.Go(func() error {
			defer o.reads.done(uid)
			o.readAsked(ctx, uid, asked)
			return nil
		})
	}
}

// readAsked reads a pod unless someone has done so since it was asked for.
func (o *Observer) readAsked(ctx context.Context, uid types.UID, asked time.Time) {
	if pod, ok := o.cache.get(uid); ok && pod.ReadAt.After(asked) {
		return
	}
	if _, err := o.Reread(ctx, uid); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Pod cannot be read, trying again at the next relist",
			"podUID", uid, "err", err)
	}
}

// tellLoop hands changes over one by one; only this goroutine waits for the receiver.
func (o *Observer) tellLoop(ctx context.Context) {
	for {
		uid, _, ok := o.changed.take()
		if !ok {
			if !await.On(ctx, o.changed.wake) {
				return
			}
			continue
		}
		if !await.Send(ctx, o.changes, uid) {
			return
		}
		o.changed.done(uid)
	}
}
