package claims

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/await"
)

// caller calls drivers, and records what is sent and what they answered.
type caller struct {
	drivers Drivers
	book    *book
	flights *flights
	news    func() // a call has ended
}

// callSet has the calls that one goroutine makes, with the stages of the drivers before.
type callSet struct {
	kind  EventKind // PrepareSent or UnprepareSent
	calls []called
	was   map[called]Stage
	busy  []<-chan struct{} // the ends of calls of others, for the same claims
}

// takeCalls records the calls that are not under way as sent.
func (by *caller) takeCalls(d *draft, owed []called, kind EventKind, now time.Time) (t callSet) {
	t.kind = kind
	t.calls, t.busy = by.flights.take(dedupe(owed))
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
func (by *caller) callAll(ctx context.Context, t callSet,
	call func(context.Context, string, []called) map[called]outcome) error {
	return cmp.Or(await.All(byDriver(t.calls), -1, func(batch []called) error {
		return by.land(t, batch, call(ctx, batch[0].driver, batch))
	})...)
}

// outcome says what became of a call for one claim.
type outcome struct {
	event Event // without a kind: nothing is known of the call's effect
	err   error
}

// land records the outcomes of one driver's call.
func (by *caller) land(t callSet, batch []called, outcomes map[called]outcome) error {
	defer by.news()
	defer by.flights.land(batch)
	now := time.Now()
	err := by.book.applyAnswers(func(d *draft) error {
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
		by.flights.note(c, t.kind, o.err, now)
		if first == nil {
			first = o.err
		}
	}
	return first
}

func (by *caller) callPrepare(ctx context.Context, driver string,
	batch []called) map[called]outcome {
	claims := by.claimsOf(batch)
	answers, err := by.drivers.Prepare(ctx, driver, claims)
	return outcomes(batch, claims, answers, err, func(a dra.Answer) (Event, error) {
		return Event{Kind: WasPrepared, Devices: a.Devices}, a.Err
	})
}

// outcomes returns what became of a driver's call for each claim. what returns the event of an
// answer, or its error.
func outcomes[A any](batch []called, claims []dra.Claim, answers map[types.UID]A, failed error,
	what func(A) (Event, error)) map[called]outcome {
	out := map[called]outcome{}
	for i, c := range batch {
		answer, answered := answers[claims[i].UID]
		switch {
		case failed != nil:
			out[c] = unanswered(failed)
		case !answered:
			out[c] = outcome{err: errNoAnswer}
		default:
			event, err := what(answer)
			if err != nil {
				event = Event{}
			}
			out[c] = outcome{event, err}
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
func (by *caller) claimsOf(batch []called) []dra.Claim {
	out := make([]dra.Claim, len(batch))
	for i, c := range batch {
		out[i] = dra.Claim{Namespace: c.key.Namespace, Name: c.key.Name}
		if r := by.book.get(c.key); r != nil {
			out[i].UID = r.UID
		}
	}
	return out
}

func (by *caller) callUnprepare(ctx context.Context, driver string,
	batch []called) map[called]outcome {
	claims := by.claimsOf(batch)
	answers, err := by.drivers.Unprepare(ctx, driver, claims)
	return outcomes(batch, claims, answers, err, func(failed error) (Event, error) {
		return Event{Kind: WasUnprepared}, failed
	})
}

// due returns the calls to unprepare whose time has come, and when others' will. A driver that is
// not there is not called, and that is its problem; it is tried when it is there.
func (by *caller) due(d *draft, now time.Time) (due []called, next time.Time) {
	for key := range d.all() {
		r := d.get(key)
		if r == nil {
			continue
		}
		for _, driver := range r.ToUnprepare() {
			c := called{key, driver}
			p := by.flights.problem(c)
			switch {
			case by.flights.busy(c):
			case p.Retry.After(now):
				next = await.Earlier(next, p.Retry)
			case !by.drivers.Usable(driver):
				by.flights.note(c, UnprepareSent, unregistered{driver}, now)
				next = await.Earlier(next, by.flights.problem(c).Retry)
			default:
				due = append(due, c)
			}
		}
	}
	return due, next
}

// failed returns why the pod's claims could not be unprepared since then.
func (by *caller) failed(uid types.UID, since time.Time) error {
	for _, r := range by.book.of(uid) {
		if r.has(uid) {
			continue // it is not known yet that it left
		}
		for _, d := range r.Drivers {
			if p := by.flights.problem(called{r.key(), d.Name}); p.Err != nil && !p.At.Before(since) {
				return p.Err
			}
		}
	}
	return nil
}
