package record

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/goldentest"
	"github.com/numalet/numalet/internal/podtest"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// holding is a pod with devices.
func holding(ids ...string) allocation.Pod {
	return allocation.Pod{UID: "a", Containers: map[string]allocation.Container{"main": {
		allocation.Devices{{Resource: "example.com/gpu", IDs: ids}},
	}}}
}

// typical is a pod as it is found in a state.
func typical(s State) Record {
	r := Record{State: s, Tries: Tries{Since: began}}
	r.Pod = podtest.New("a", podtest.Guaranteed("main example.com/gpu=1"))
	switch s {
	case Asking, Inquiring, Behind:
		r.Has = Reservation{Placed, holding("place")}
	case Allocating, Retrying, Admitted, Terminating, Finishing, Unreleased, Releasing:
		r.Has.Pod = holding("own")
	case Waiting, PendingRelease:
		r.Has, r.Cause = Reservation{Claimed, holding("claimed")}, decide.ForResources
	}
	if s == Inquiring {
		r.Inquiry = Inquiry{Begun: true, Looked: true, Lack: decide.Lack{Unknown: true}}
	}
	if s == Behind {
		r.After = "other"
	}
	if s == Asking {
		r.Question = Question{Resource: "example.com/gpu", Asked: began}
	}
	if s == Retrying || s == Deferred {
		r.Tries.Refusal = &allocation.Rejection{Reason: "Failed", Message: "as it was"}
	}
	return r
}

type named struct {
	name string
	Event
}

// plan is the event of a decision.
func plan(kind decide.Kind, outcome decide.Outcome, p allocation.Plan) Decided {
	return Decided{Decision: decide.Decision{
		Pod: typical(Queued).Pod, Outcome: outcome, Kind: kind, Reason: "Because", Message: "of this",
		Case: explain.Case{Plan: p}, Held: p.Pod, Claim: holding("next"),
		Rejection: &allocation.Rejection{Reason: "Refused", Message: "no room"},
	}}
}

// lacks lists how much admission may know, at a pod's turn, of the objects that the pod needs.
var lacks = []struct {
	words string
	Inquiry
}{
	{"it lacks an object", Inquiry{Begun: true, Lack: decide.Lack{Why: "no secret"}}},
	{"it may lack an object", Inquiry{Begun: true, Lack: decide.Lack{Unknown: true}}},
	{"the API server was silent", Inquiry{Begun: true, Lack: decide.Lack{Unknown: true}, Looked: true}},
	{"it lacked an object", Inquiry{Begun: true, Overtaken: true}},
}

// decisions returns the decisions on a pod that may lack an object, each as both events.
func decisions() (out []named) {
	for _, d := range []named{
		{"a place", plan(decide.Planned, decide.Admit, allocation.Plan{Pod: holding("d0")})},
		{"a place later", plan(decide.Planned, decide.Wait, allocation.Plan{})},
		{"no place", plan(decide.Planned, decide.Reject, allocation.Plan{})},
		{"a handler says no", plan(decide.Checked, decide.Reject, allocation.Plan{})},
	} {
		out = append(out, named{"considered: " + d.name, Considered{d.Event.(Decided).Decision}},
			named{"decided: " + d.name, d.Event})
	}
	return out
}

// happenings are the events that a pod may meet in a state.
func happenings(s State) (out []named) {
	out = []named{
		{"left", Left{}}, {"gone", Gone{}}, {"late", Late{}},
		{"resubmitted", Resubmitted{typical(s).Demand, typical(s).Demand}},
	}
	switch s {
	case Queued:
		stale := plan(decide.Planned, decide.Reject, allocation.Plan{}).Decision
		stale.Case.Err = &allocation.Rejection{Short: v1.ResourceMemory}
		question := &allocation.Ask{AskKey: allocation.AskKey{Container: "main", Resource: "example.com/gpu"}}
		out = append(out,
			named{"decided: nothing to assign", plan(decide.Planned, decide.Admit, allocation.Plan{})},
			named{"decided: a place", plan(decide.Planned, decide.Admit, allocation.Plan{Pod: holding("d0")})},
			named{"decided: ask first", plan(decide.Planned, decide.Admit,
				allocation.Plan{Pod: holding("d0"), Ask: question})},
			named{"decided: runs", plan(decide.Adopted, decide.Admit, allocation.Plan{Pod: holding("d0")})},
			named{"decided: later", plan(decide.Planned, decide.Wait, allocation.Plan{})},
			named{"decided: soon", plan(decide.PendingRelease, decide.Wait, allocation.Plan{})},
			named{"decided: others make way", plan(decide.Preempting, decide.Wait, allocation.Plan{})},
			named{"decided: a handler says later", plan(decide.Checked, decide.Wait, allocation.Plan{})},
			named{"decided: no", plan(decide.Planned, decide.Reject, allocation.Plan{})},
			named{"considered: a place", Considered{plan(decide.Planned, decide.Admit,
				allocation.Plan{Pod: holding("d0")}).Decision}},
			named{"considered: out of memory", Considered{stale}},
			named{"ranked", Ranked{"other", true, holding("d0")}})
	case Asking, Finishing, Canceling:
		key := allocation.AskKey{Container: "main", Resource: "example.com/gpu"}
		out = append(out, named{"advised", Advised{key, []string{"d0"}, nil}},
			named{"advised: away", Advised{key, nil, &devicemanager.StoppedError{}}})
	case Rereading, Inquiring:
		out = append(out, named{"looked", Looked{}})
	case Releasing:
		out = append(out, named{"dropped: again", Dropped{}},
			named{"dropped: disk full", Dropped{errors.New("disk full")}})
	}
	switch s {
	case Allocating, Finishing, Canceling:
		own := holding("own")
		out = append(out, named{"allocated", Allocated{own}},
			named{"failed: away", Failed{own, &CallError{"example.com/gpu", &devicemanager.StoppedError{}}, began}},
			named{"failed: no", Failed{own, &CallError{"example.com/gpu", errors.New("no")}, began}},
			named{"failed: disk full", Failed{own, fmt.Errorf("%w: disk full", ErrCommit), began}})
	case Waiting, PendingRelease, Behind, Retrying, Deferred, HeldBack, Admitted:
		out = append(out, named{"moved", Moved{}})
	}
	switch s {
	case Retrying, Deferred:
		out = append(out, named{"overdue", Overdue{}})
	}
	switch s {
	case Queued, Waiting, PendingRelease, Retrying:
		out = append(out, named{"remade", Remade{}})
	}
	return out
}

// shown writes a record and effects in a line.
func shown(r Record, effects []Effect) string {
	out := r.State.String()
	if r.IsReserved() {
		out += fmt.Sprintf(", %s %s", map[ReservationKind]string{
			Assigned: "has", Placed: "place", Claimed: "claims",
		}[r.Has.Kind], strings.Join(r.Has.Pod.Containers["main"].Devices()[0].IDs, ","))
	} else if r.Claims() {
		out += ", claims"
	}
	if !r.Tries.Due.IsZero() {
		out += fmt.Sprintf(", due in %v", r.Tries.Due.Sub(began))
	}
	for _, f := range effects {
		name := strings.TrimPrefix(fmt.Sprintf("%T", f), "record.")
		switch f := f.(type) {
		case Say:
			name += fmt.Sprintf(" %s %s", f.Outcome, f.Reason)
		case SayWait:
			name += " " + f.Reason
		case SayReject:
			name += " " + f.Reason
		}
		out += "; " + strings.TrimSpace(name)
	}
	return out
}

// The golden file is the table of all events: what each makes of a pod in each state.
func TestStep(t *testing.T) {
	var b strings.Builder
	tell := func(typical func() Record, all []named) {
		for _, h := range all {
			before := typical()
			next, effects := before.Step(h.Event, Conditions{
				Now: began, Wait: time.Minute, BootID: "boot", Recorded: before.State >= Admitted, Rereads: true,
			})
			if !reflect.DeepEqual(before, typical()) {
				t.Errorf("%s in %s changes the record that it was given", h.name, before.State)
			}
			fmt.Fprintf(&b, "    %-28s %s\n", h.name, shown(next, effects))
		}
	}
	for s := Queued; s <= Unreleased; s++ {
		fmt.Fprintf(&b, "%s\n", shown(typical(s), nil))
		tell(func() Record { return typical(s) }, happenings(s))
	}
	for _, l := range lacks {
		for _, waited := range []time.Duration{0, time.Hour} {
			r := typical(Queued)
			r.Inquiry, r.Tries.Since = l.Inquiry, began.Add(-waited)
			fmt.Fprintf(&b, "%s: %s; it has waited for %v\n", shown(r, nil), l.words, waited)
			tell(func() Record { return r }, decisions())
		}
	}
	goldentest.Compare(t, filepath.Join("testdata", "step.txt"), b.String())
}

// A pod whose controller's pods were rejected lately is held back, and no longer than it was to be
// when it was tried again meanwhile.
func TestStepHoldsBack(t *testing.T) {
	no := Decided{Decision: decide.Decision{Outcome: decide.Reject,
		Rejection: &allocation.Rejection{Reason: "OutOfcpu", Message: "too little"}}}
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	r, _ := typical(Queued).Step(no, Conditions{Now: began, Wait: time.Minute, Held: at(10)})
	if got := shown(r, nil); got != "heldBack, due in 10s" {
		t.Fatalf("at first: %s", got)
	}
	r, _ = r.Step(Moved{}, Conditions{Now: at(5), Wait: time.Minute})
	r, _ = r.Step(no, Conditions{Now: at(5), Wait: time.Minute, Held: at(40)})
	if got := shown(r, nil); got != "heldBack, due in 10s" {
		t.Fatalf("tried again: %s", got)
	}
	r, _ = r.Step(Late{}, Conditions{Now: at(10), Wait: time.Minute})
	if r, _ = r.Step(no, Conditions{Now: at(10), Wait: time.Minute}); r.State != Rejected {
		t.Fatalf("in the end: %s", shown(r, nil))
	}
}

// A pod whose claim a pod ahead may have got is decided on again, at once or after the call under way. If it lost
// the claim, it has nothing until then.
func TestDisplaced(t *testing.T) {
	for s, next := range map[State]State{
		Waiting: Queued, PendingRelease: Queued, Behind: Queued, Asking: Asking, Inquiring: Inquiring, Rereading: Rereading,
	} {
		r := typical(s)
		r.Has = Reservation{Claimed, holding("claimed")}
		if !s.MayBeDisplaced() {
			t.Errorf("%s: others cannot have its claim", s)
		}
		if kept := r.Displaced(false); kept.State != next || !kept.IsReserved() {
			t.Errorf("%s: with a claim that is good it is %s and has %v", s, kept.State, kept.Has)
		}
		lost := r.Displaced(true)
		if lost.State != next || lost.IsReserved() || !lost.Claims() {
			t.Errorf("%s: without its claim it is %s and has %v", s, lost.State, lost.Has)
		}
		if lost.Question.Void != (s == Asking) {
			t.Errorf("%s: the question is void: %t", s, lost.Question.Void)
		}
		other := Reservation{Claimed, holding("other")}
		if got := r.Exchanged(other.Pod); got.State != s || !reflect.DeepEqual(got.Has, other) {
			t.Errorf("%s: with other devices it is %s and has %v", s, got.State, got.Has)
		}
	}
}

// Time passes for a pod that lacks something, and not while the API server does not say what.
func TestLacking(t *testing.T) {
	unknown, missing := decide.Lack{Unknown: true}, decide.Lack{Why: "no key"}
	later := began.Add(time.Minute)
	for _, c := range []struct {
		overtaken bool
		before    decide.Lack
		since     time.Time
	}{{false, unknown, began}, {true, unknown, later}, {true, missing, began}} {
		r := Record{Tries: Tries{Since: began}, Inquiry: Inquiry{Overtaken: c.overtaken, Lack: c.before}}
		if got := r.Lacking(missing, later); !got.Tries.Since.Equal(c.since) || got.Inquiry.Lack != missing {
			t.Errorf("overtaken %t after %+v: it lacks %+v since %v", c.overtaken, c.before, got.Inquiry.Lack, got.Tries.Since)
		}
	}
}
