package claims

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

// activePeriod is how often pods are looked for that use claims and are not there any more.
const activePeriod = time.Minute

// recordRetry is the pause before releases are recorded again that could not be.
const recordRetry = time.Second

// Release says that the pod needs its claims no longer: no container of it runs. It does not block;
// Run has the claims of which it is the last user unprepared. Calls that failed lately are tried at once.
func (m *Manager) Release(uid types.UID) {
	own := map[types.NamespacedName]bool{}
	for _, r := range m.book.of(uid) {
		own[r.key()] = true
	}
	if len(own) == 0 && !m.pods.preparing(uid) {
		return
	}
	m.calls.flights.hasten(func(c called) bool { return own[c.key] })
	m.pods.release(uid)
}

// Unprepare is Release, and waits until nothing of the pod's claims is left, or a try to unprepare
// them failed, whose error it returns in the kubelet's words.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) error {
	began := time.Now()
	m.Release(uid)
	err := m.awaitUnprepared(ctx, uid, began)
	m.metrics.handled(opUnprepare, began, err)
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) awaitUnprepared(ctx context.Context, uid types.UID, since time.Time) error {
	for {
		news := m.pods.next()
		if m.Held(uid) == nil {
			return nil
		}
		if err := m.calls.failed(uid, since); err != nil {
			return err
		}
		if !await.On(ctx, news) {
			return ctx.Err()
		}
	}
}

// Run unprepares claims until ctx ends and its calls have returned, once it is recorded what running
// pods use. pods returns the node's; false: not all are known yet.
func (m *Manager) Run(ctx context.Context, pods func() (Pods, bool)) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { m.follow.readers.Run(ctx) })
	running.Go(func() { m.hold(ctx, pods) })
	look := time.Now()
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(look) {
			m.releaseGone(pods)
			look = now.Add(activePeriod)
		}
		next := m.round(ctx, &running)
		select {
		case <-ctx.Done():
		case <-m.pods.wake:
		case <-await.At(await.Earlier(next, look)):
		case <-m.cfg.DriversChanged:
			m.calls.flights.hasten(func(c called) bool { return m.cfg.Drivers.Usable(c.driver) })
			m.cfg.Ends.Changed()
		}
	}
	return nil
}

// releaseGone releases what pods use that are not there: admission gave them up, or they vanished
// while the agent was away.
func (m *Manager) releaseGone(pods func() (Pods, bool)) {
	now, known := pods()
	if !known {
		return
	}
	for _, r := range m.book.records() {
		for _, u := range r.active() {
			if !now.Active.Has(u.UID) && !m.pods.preparing(u.UID) {
				m.Release(u.UID)
			}
		}
	}
}

// round records releases, and begins the calls that are due. It returns when the next one is.
func (m *Manager) round(ctx context.Context, running *sync.WaitGroup) (next time.Time) {
	left, now := m.pods.take(), time.Now()
	var t callSet
	var spared []string // drivers that want no call
	err := m.book.apply(func(d *draft) error {
		spared = nil
		for _, uid := range left {
			for _, r := range d.base.of(uid) {
				spared = append(spared, d.get(r.key()).sparedBy(uid)...)
				_ = d.step(r.key(), Event{Kind: Left, User: User{UID: uid}, At: now}) // cannot fail
			}
		}
		var due []called
		select {
		case <-m.held:
			due, next = m.calls.due(d, now)
		default: // it wakes this up
		}
		t = m.calls.takeCalls(d, due, UnprepareSent, now)
		return nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Released resource claims are not recorded, trying again")
		m.calls.flights.land(t.calls)
		m.pods.putBack(left)
		return now.Add(recordRetry)
	}
	for _, driver := range spared {
		m.metrics.skippedEnds.WithLabelValues(driver).Inc()
	}
	m.calls.flights.keep(m.book.records())
	m.pods.tell()
	for _, batch := range byDriver(t.calls) {
		running.Go(func() { m.unprepare(ctx, t, batch) })
	}
	return next
}

// unprepare makes one driver's call, and has Run look again.
func (m *Manager) unprepare(ctx context.Context, t callSet, batch []called) {
	err := m.calls.land(t, batch, m.calls.callUnprepare(ctx, batch[0].driver, batch))
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("A driver did not unprepare all resource claims, trying again",
			"driver", batch[0].driver, "err", err)
	}
	await.Wake(m.pods.wake)
}
