package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/await"
)

// errReleased: the pod needs its claims no longer.
var errReleased = errors.New("the pod is ending")

// unregistered is the error about a driver that cannot be called, in the kubelet's words.
type unregistered struct{ driver string }

func (e unregistered) Error() string {
	return fmt.Sprintf("DRA driver %s is not registered", e.driver)
}

func (unregistered) Is(target error) bool { return target == dra.ErrNotRegistered }

// Prepare has the drivers of the pod's claims prepare them. It returns when all of them are prepared
// and recorded, or the first error, in the kubelet's words without "prepare dynamic resources: ",
// which admission adds. It may be repeated, and calls no driver for what is prepared. The pod is a
// user of its claims from then on, also after an error unless no driver was called, until Release.
//
// If claims are given that are not among the pod's, the error is claim.ErrReplaced, and Uses tells of
// those that are there now.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod, claims ...types.UID) error {
	if !claim.Any(pod) {
		return nil
	}
	began := time.Now()
	err := m.prepare(ctx, pod, claims)
	m.metrics.handled(opPrepare, began, err)
	return err
}

func (m *Manager) prepare(ctx context.Context, pod *v1.Pod, claims []types.UID) error {
	released, leave := m.pods.enter(pod.UID)
	defer leave()
	if _, ok := m.book.recorded(pod); ok {
		return nil
	}
	uses, err := m.follow.uses(ctx, pod)
	if err != nil {
		return err
	}
	for _, uid := range claims {
		if !slices.ContainsFunc(uses, func(u Use) bool { return u.UID == uid }) {
			return fmt.Errorf("resource claim %s: %w", uid, claim.ErrReplaced)
		}
	}
	for _, u := range uses {
		for _, driver := range u.Drivers() {
			switch {
			case u.Skips[driver].Prepare:
				m.metrics.skipped.WithLabelValues(driver).Inc()
			case !m.cfg.Drivers.Usable(driver):
				return unregistered{driver}
			}
		}
	}
	return m.callToPrepare(ctx, pod, func(d *draft) ([]called, error) {
		if released() {
			return nil, errReleased
		}
		return d.use(pod, uses)
	})
}

// callToPrepare makes the calls that change says are owed, until there are none and those of others
// for the same claims have ended.
func (m *Manager) callToPrepare(ctx context.Context, pod *v1.Pod,
	change func(*draft) ([]called, error)) error {
	for {
		t, err := m.begin(change)
		if err != nil {
			return err
		}
		if len(t.calls)+len(t.busy) == 0 {
			return nil
		}
		if err := m.calls.callAll(ctx, t, m.calls.callPrepare); err != nil {
			return err
		}
		if slices.ContainsFunc(t.calls, func(c called) bool {
			return m.follow.othersWait(pod.UID, m.book.get(c.key))
		}) {
			m.cfg.Ends.Changed()
		}
		for _, end := range t.busy {
			if !await.On(ctx, end) {
				return ctx.Err()
			}
		}
	}
}

// use makes the pod a user of claims, and returns the calls that they need.
func (d *draft) use(pod *v1.Pod, uses []Use) (owed []called, err error) {
	for _, u := range uses {
		key := types.NamespacedName{Namespace: u.Namespace, Name: u.Name}
		if err := d.step(key, Event{Kind: Used, At: time.Now(), Use: u,
			User: User{UID: pod.UID, Name: pod.Name}}); err != nil {
			return nil, err
		}
	}
	for _, u := range uses {
		key := types.NamespacedName{Namespace: u.Namespace, Name: u.Name}
		for _, driver := range d.get(key).ToPrepare() {
			owed = append(owed, called{key, driver})
		}
	}
	return owed, nil
}

// begin records a change, and takes the calls that it says are owed.
func (m *Manager) begin(change func(*draft) ([]called, error)) (t callSet, err error) {
	err = m.book.apply(func(d *draft) error {
		owed, err := change(d)
		if err == nil {
			t = m.calls.takeCalls(d, owed, PrepareSent, time.Now())
		}
		return err
	})
	if err != nil {
		m.calls.flights.land(t.calls)
		return callSet{}, err
	}
	return t, nil
}
