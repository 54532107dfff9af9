package shutdown

import (
	"context"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// Texts of events and statuses about a shutdown, in the kubelet's words.
const (
	ReasonShutdown   = "Shutdown"
	messageShutdown  = "Shutdown manager detected shutdown event"
	messageCancelled = "Shutdown manager detected shutdown cancellation"
	// Message is of a pod that ended since the node goes down.
	Message = "Pod was terminated in response to imminent node shutdown."
)

const (
	// period is the time between two looks at pods that end.
	period = time.Second
	// tellWithin bounds how long the end of the last wave waits until others know of it: the API
	// server may have been one of its pods.
	tellWithin = 3 * time.Second
)

// Config has what a Manager works with.
type Config struct {
	Waves  []Wave // none: nothing is done, and the bus is left alone
	Logind Logind
	// Announced takes whether the machine goes down.
	Announced *Announced
	PodFacts
	// End ends a pod within grace; it must not block.
	End func(pod *v1.Pod, grace time.Duration)
	// Tell records an event of the node.
	Tell func(eventType, reason, message string)
	// Dir is where the last shutdown is recorded; "": it is not, and there are no metrics.
	Dir      string
	Registry metrics.KubeRegistry
}

// PodFacts says what is known of pods.
type PodFacts struct {
	// Pods lists the admitted pods that have not ended, and all other pods that still run something.
	Pods func() []*v1.Pod
	// Left reports whether something of a pod that was told to end is left, or held.
	Left func(types.UID) bool
	// Changed has a value when one of both may be another.
	Changed <-chan struct{}
	// Synced waits until others know of the ends of pods, or ctx ends, and reports whether they do.
	Synced func(ctx context.Context) bool
	// Grace is how long a pod gets to exit by its own spec.
	Grace func(*v1.Pod) time.Duration
}

// Manager ends the pods when the machine goes down.
type Manager struct {
	cfg     Config
	record  recorder
	entries *mailbox.Box[entry]
	take    chan struct{} // capacity 1: an inhibitor is asked for

	// Owned by Run.
	state state
	lock  *os.File // the inhibitor; nil: none is held
	last  times
}

// New returns a manager that has not connected yet.
func New(cfg Config) (*Manager, error) {
	record, err := newRecorder(cfg)
	return &Manager{cfg: cfg, record: record, entries: mailbox.New[entry](),
		take: make(chan struct{}, 1)}, err
}

// Run follows logind until ctx ends. An inhibitor that is held is released then.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.cfg.Waves) == 0 {
		return nil
	}
	m.record.load(ctx)
	arrived := make(chan news)
	c := client{Logind: m.cfg.Logind, delay: total(m.cfg.Waves), take: m.take,
		tell: func(ctx context.Context, n news) bool { return await.Send(ctx, arrived, n) }}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { c.run(ctx) })
	work.Go(func() { _ = m.entries.Each(ctx, func(e entry) { m.record.write(ctx, e) }) })
	defer func() { m.hold(nil) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-arrived:
			if n.kind == taken {
				m.hold(n.lock)
			}
			m.step(ctx, n.heard)
		case <-m.cfg.Changed:
			m.step(ctx, heard{})
		case <-await.At(m.due()):
			m.step(ctx, heard{})
		}
	}
}

// due returns when to look again; zero: not before something is heard.
func (m *Manager) due() time.Time {
	due := m.state.due(m.cfg.Waves)
	if due.IsZero() {
		return due
	}
	return await.Earlier(due, time.Now().Add(period)) // not all that is left tells of its end
}

// hold holds an inhibitor, and releases the one that was held.
func (m *Manager) hold(lock *os.File) {
	if m.lock != nil {
		m.lock.Close()
	}
	m.lock = lock
}

// step takes in what was heard, and carries out what follows.
func (m *Manager) step(ctx context.Context, h heard) {
	in := input{heard: h, now: time.Now()}
	pods := map[types.UID]*v1.Pod{}
	if m.state.down != nil || h.preparing {
		in.pods, in.left = m.look(pods)
	}
	next, effects := m.state.step(in, m.cfg.Waves)
	m.state = next
	for _, e := range effects {
		m.carryOut(ctx, e, pods[e.pod])
	}
}

// look returns the pods that run, also by UID, and those that were told to end and are not entirely gone.
func (m *Manager) look(by map[types.UID]*v1.Pod) ([]candidate, sets.Set[types.UID]) {
	var all []candidate
	for _, pod := range m.cfg.Pods() {
		by[pod.UID] = pod
		all = append(all, candidate{
			pod.UID, waveOf(m.cfg.Waves, ptr.Deref(pod.Spec.Priority, 0)), m.cfg.Grace(pod),
		})
	}
	left := sets.Set[types.UID]{}
	if m.state.down != nil {
		for uid := range m.state.down.waves {
			if m.cfg.Left(uid) {
				left.Insert(uid)
			}
		}
	}
	return all, left
}

func (m *Manager) carryOut(ctx context.Context, e effect, pod *v1.Pod) {
	log := klog.FromContext(ctx)
	switch e.action {
	case take:
		await.Wake(m.take)
	case begin:
		log.Info("The machine goes down", "inhibited", m.lock != nil)
		m.cfg.Announced.set(true)
		m.cfg.Tell(v1.EventTypeNormal, ReasonShutdown, messageShutdown)
		m.last = times{Start: time.Now()}
		m.entries.Put(entry{m.last, nil})
	case end:
		log.Info("Ending a pod, since the machine goes down", "pod", klog.KObj(pod),
			"grace", e.grace)
		m.cfg.End(pod, e.grace)
	case release:
		log.Info("All pods had their time; the machine may go down", "after",
			time.Since(m.last.Start).Round(time.Millisecond))
		m.ended(m.lock)
		m.lock = nil
	case cancel:
		log.Info("The machine does not go down")
		m.cfg.Announced.set(false)
		m.cfg.Tell(v1.EventTypeNormal, ReasonShutdown, messageCancelled)
		if m.last.End.IsZero() {
			m.ended(nil)
		}
	}
}

// ended records the end of a shutdown, and then releases the inhibitor.
func (m *Manager) ended(lock *os.File) {
	m.last.End = time.Now()
	m.entries.Put(entry{m.last, lock})
}
