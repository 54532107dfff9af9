package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/claims/claim"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/await"
)

// errReleased: the pod needs its claims no longer.
var errReleased = errors.New("the pod is ending")

func isUnusable(err error) bool { return errors.Is(err, ErrUnusable) }

// unregistered is the error about a driver that cannot be called, in the kubelet's words.
type unregistered struct{ driver string }

func (e unregistered) Error() string {
	return fmt.Sprintf("DRA driver %s is not registered", e.driver)
}

func (unregistered) Is(target error) bool { return target == dra.ErrNotRegistered }

// Prepare has the drivers of the pod's claims prepare them. It returns when all of them are prepared
// and recorded, or the first error, in the kubelet's words. It may be repeated, and calls no driver
// for what is prepared. The pod is a user of its claims from then on, also after an error unless no
// driver was called, until Release.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	if !claim.Any(pod) {
		return nil
	}
	began := time.Now()
	err := m.prepare(ctx, pod)
	m.metrics.handled(opPrepare, began, err)
	if err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, pod *v1.Pod) error {
	released, leave := m.pods.enter(pod.UID)
	defer leave()
	if _, ok := m.recorded(pod); ok {
		return nil
	}
	uses, err := m.follow.uses(ctx, pod)
	if err != nil {
		return err
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
	for {
		t, err := m.begin(pod, uses, released)
		if err != nil {
			return err
		}
		if len(t.calls)+len(t.busy) == 0 {
			return nil
		}
		if err := m.callAll(ctx, t, m.callPrepare); err != nil {
			return err
		}
		for _, end := range t.busy {
			if !await.On(ctx, end) {
				return ctx.Err()
			}
		}
	}
}

// turn is a set of calls that one goroutine makes, with the stages of the drivers before.
type turn struct {
	kind  EventKind // PrepareSent or UnprepareSent
	calls []called
	was   map[called]Stage
	busy  []<-chan struct{} // the ends of calls of others, for the same claims
}

// begin makes the pod a user of its claims, and takes the calls that are to be made for them.
func (m *Manager) begin(pod *v1.Pod, uses []Use, released func() bool) (t turn, err error) {
	now := time.Now()
	err = m.book.apply(func(d *draft) error {
		if released() {
			return errReleased
		}
		var owed []called
		for _, u := range uses {
			key := types.NamespacedName{Namespace: u.Namespace, Name: u.Name}
			if err := d.step(key, Event{Kind: Used, At: now, Use: u,
				User: User{UID: pod.UID, Name: pod.Name}}); err != nil {
				return err
			}
		}
		for _, u := range uses {
			key := types.NamespacedName{Namespace: u.Namespace, Name: u.Name}
			for _, driver := range d.get(key).ToPrepare() {
				owed = append(owed, called{key, driver})
			}
		}
		t = m.takeCalls(d, owed, PrepareSent, now)
		return nil
	})
	if err != nil {
		m.flights.land(t.calls)
		return turn{}, err
	}
	return t, nil
}

// takeCalls records the calls that are not under way as sent.
func (m *Manager) takeCalls(d *draft, owed []called, kind EventKind, now time.Time) (t turn) {
	t.kind = kind
	t.calls, t.busy = m.flights.take(dedupe(owed))
	t.was = map[called]Stage{}
	for _, c := range t.calls {
		t.was[c] = d.get(c.key).driver(c.driver).Stage
		_ = d.step(c.key, Event{Kind: kind, Driver: c.driver, At: now}) // cannot fail
	}
	return t
}

func dedupe(all []called) (out []called) {
	known := map[called]bool{}
	for _, c := range all {
		if !known[c] {
			known[c] = true
			out = append(out, c)
		}
	}
	return out
}

// callAll makes the calls, one for each driver, side by side. It returns the first driver's error.
func (m *Manager) callAll(ctx context.Context, t turn,
	call func(context.Context, string, []called) map[called]outcome) error {
	batches := byDriver(t.calls)
	errs := make([]error, len(batches))
	places := make([]int, len(batches))
	for i := range places {
		places[i] = i
	}
	_ = await.Each(places, -1, func(i int) error {
		errs[i] = m.land(t, batches[i], call(ctx, batches[i][0].driver, batches[i]))
		return nil
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// outcome is what became of a call for one claim.
type outcome struct {
	event Event // without a kind: nothing is known of the call's effect
	err   error
}

// land records the outcomes of one driver's call.
func (m *Manager) land(t turn, batch []called, outcomes map[called]outcome) error {
	defer m.pods.tell()
	defer m.flights.land(batch)
	now := time.Now()
	err := m.book.apply(func(d *draft) error {
		for _, c := range batch {
			e := outcomes[c].event
			if e.Kind == "" {
				continue
			}
			e.Driver, e.At = c.driver, now
			if e.Kind == NotSent {
				e.Stage = t.was[c]
			}
			_ = d.step(c.key, e) // events of calls do not fail
		}
		return nil
	})
	var first error
	for _, c := range batch {
		o := outcomes[c]
		if err != nil && o.err == nil {
			o.err = err
		}
		m.flights.note(c, t.kind, o.err, now)
		if first == nil {
			first = o.err
		}
	}
	return first
}

func (m *Manager) callPrepare(ctx context.Context, driver string, batch []called) (
	out map[called]outcome) {
	claims := m.claimsOf(batch)
	answers, err := m.cfg.Drivers.Prepare(ctx, driver, claims)
	out = map[called]outcome{}
	for i, c := range batch {
		answer, answered := answers[claims[i].UID]
		switch {
		case err != nil:
			out[c] = unanswered(err)
		case !answered:
			out[c] = outcome{err: errNoAnswer}
		case answer.Err != nil:
			out[c] = outcome{err: answer.Err}
		default:
			out[c] = outcome{event: Event{Kind: WasPrepared, Devices: answer.Devices}}
		}
	}
	return out
}

// errNoAnswer: there is no answer for a claim, which drivers' errors say better.
var errNoAnswer = errors.New("the driver did not answer for the ResourceClaim")

// unanswered is the outcome of a call that failed as a whole.
func unanswered(err error) outcome {
	if errors.Is(err, dra.ErrNotRegistered) {
		return outcome{event: Event{Kind: NotSent}, err: err}
	}
	return outcome{err: err}
}

// claimsOf returns the claims of calls as drivers get them.
func (m *Manager) claimsOf(batch []called) []dra.Claim {
	out := make([]dra.Claim, len(batch))
	for i, c := range batch {
		out[i] = dra.Claim{Namespace: c.key.Namespace, Name: c.key.Name}
		if r := m.book.get(c.key); r != nil {
			out[i].UID = r.UID
		}
	}
	return out
}
