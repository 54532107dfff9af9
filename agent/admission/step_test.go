package admission

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// holding is a pod with devices.
func holding(ids ...string) allocation.Pod {
	return allocation.Pod{UID: "a", Containers: map[string]allocation.Container{"main": {
		allocation.Devices{{Resource: "example.com/gpu", IDs: ids}},
	}}}
}

// typical is a pod as it is found in a state.
func typical(s state) record {
	r := record{state: s, tries: tries{since: began}}
	r.Pod = podtest.New("a", podtest.Guaranteed("main example.com/gpu=1"))
	switch s {
	case asking, inquiring, behind:
		r.has = reservation{tentative, holding("guess")}
	case allocating, retrying, admitted, terminating, finishing, unreleased, releasing:
		r.has.pod = holding("own")
	case waiting, pendingRelease:
		r.has, r.cause = reservation{claimed, holding("claimed")}, decide.ReasonWaitResources
	}
	if s == inquiring {
		r.inquiry = inquiry{begun: true, looked: true, lack: decide.Lack{Unknown: true}}
	}
	if s == behind {
		r.after = "other"
	}
	if s == retrying || s == deferred {
		r.tries.refusal = &allocation.Rejection{Reason: "Failed", Message: "as it was"}
	}
	return r
}

type named struct {
	name string
	event
}

// plan is the event of a decision.
func plan(kind decide.Kind, outcome decide.Outcome, p allocation.Plan) decided {
	return decided{Decision: decide.Decision{
		Pod: typical(queued).Pod, Outcome: outcome, Kind: kind, Reason: "Because", Message: "of this",
		Case: explain.Case{Plan: p}, Held: p.Pod, Claim: holding("next"),
		Rejection: &allocation.Rejection{Reason: "Refused", Message: "no room"},
	}}
}

// lacks lists how much admission may know, at a pod's turn, of the objects that the pod needs.
var lacks = []struct {
	words string
	inquiry
}{
	{"it lacks an object", inquiry{begun: true, lack: decide.Lack{Why: "no secret"}}},
	{"it may lack an object", inquiry{begun: true, lack: decide.Lack{Unknown: true}}},
	{"the API server was silent", inquiry{begun: true, lack: decide.Lack{Unknown: true}, looked: true}},
	{"it lacked an object", inquiry{begun: true, aside: true}},
}

// decisions returns the decisions on a pod that may lack an object, each as both events.
func decisions() (out []named) {
	for _, d := range []named{
		{"a place", plan(decide.Planned, decide.Admit, allocation.Plan{Pod: holding("d0")})},
		{"a place later", plan(decide.Planned, decide.Wait, allocation.Plan{})},
		{"no place", plan(decide.Planned, decide.Reject, allocation.Plan{})},
		{"a handler says no", plan(decide.Checked, decide.Reject, allocation.Plan{})},
	} {
		out = append(out, named{"considered: " + d.name, considered{d.event.(decided).Decision}},
			named{"decided: " + d.name, d.event})
	}
	return out
}

// happenings are the events that a pod may meet in a state.
func happenings(s state) (out []named) {
	out = []named{
		{"left", left{}}, {"gone", gone{}}, {"late", late{}},
		{"resubmitted", resubmitted{typical(s).Demand, typical(s).Demand}},
	}
	switch s {
	case queued:
		stale := plan(decide.Planned, decide.Reject, allocation.Plan{}).Decision
		stale.Case.Err = &allocation.Rejection{Reason: "OutOfmemory"}
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
			named{"learned", learned{decide.Lack{Unknown: true}}},
			named{"considered: a place", considered{plan(decide.Planned, decide.Admit,
				allocation.Plan{Pod: holding("d0")}).Decision}},
			named{"considered: out of memory", considered{stale}},
			named{"ranked", ranked{"other", true, holding("d0")}})
	case asking, finishing, canceling:
		key := allocation.AskKey{Container: "main", Resource: "example.com/gpu"}
		out = append(out, named{"advised", advised{key, []string{"d0"}, nil}},
			named{"advised: away", advised{key, nil, &devicemanager.StoppedError{}}})
	case rereading, inquiring:
		out = append(out, named{"looked", looked{}})
	case waiting, pendingRelease:
		out = append(out, named{"displaced", displaced{}}, named{"displaced: broken", displaced{true}},
			named{"exchanged", exchanged{holding("other")}})
	case releasing:
		out = append(out, named{"dropped: again", dropped{}},
			named{"dropped: disk full", dropped{errors.New("disk full")}})
	}
	switch s {
	case allocating, finishing, canceling:
		own := holding("own")
		out = append(out, named{"allocated", allocated{own}},
			named{"failed: away", failed{own, &callError{"example.com/gpu", &devicemanager.StoppedError{}}, began}},
			named{"failed: no", failed{own, &callError{"example.com/gpu", errors.New("no")}, began}},
			named{"failed: disk full", failed{own, fmt.Errorf("%w: disk full", errCommit), began}})
	case waiting, pendingRelease, behind, retrying, deferred, heldBack, admitted:
		out = append(out, named{"moved", moved{}})
	}
	switch s {
	case retrying, deferred:
		out = append(out, named{"overdue", overdue{}})
	case asking, inquiring, behind:
		out = append(out, named{"outguessed", outguessed{}})
	}
	switch s {
	case queued, waiting, pendingRelease, retrying:
		out = append(out, named{"remade", remade{}})
	}
	return out
}

// shown writes a record and effects in a line.
func shown(r record, effects []effect) string {
	out := r.state.String()
	if r.isReserved() {
		out += fmt.Sprintf(", %s %s", map[reservationKind]string{
			assigned: "has", tentative: "guesses", claimed: "claims",
		}[r.has.kind], strings.Join(r.has.pod.Containers["main"].Devices()[0].IDs, ","))
	} else if r.claims() {
		out += ", claims"
	}
	if !r.tries.due.IsZero() {
		out += fmt.Sprintf(", due in %v", r.tries.due.Sub(began))
	}
	for _, f := range effects {
		name := strings.TrimPrefix(fmt.Sprintf("%T", f), "admission.")
		switch f := f.(type) {
		case say:
			name += fmt.Sprintf(" %s %s", f.outcome, f.reason)
		case sayWait:
			name += " " + f.Reason
		case sayReject:
			name += " " + f.Reason
		}
		out += "; " + strings.TrimSpace(name)
	}
	return out
}

// The golden file is the table of all events: what each makes of a pod in each state.
func TestStep(t *testing.T) {
	var b strings.Builder
	tell := func(typical func() record, all []named) {
		for _, h := range all {
			before := typical()
			next, effects := before.step(h.event, conditions{
				now: began, wait: time.Minute, bootID: "boot", recorded: before.state >= admitted, rereads: true,
			})
			if !reflect.DeepEqual(before, typical()) {
				t.Errorf("%s in %s changes the record that it was given", h.name, before.state)
			}
			fmt.Fprintf(&b, "    %-28s %s\n", h.name, shown(next, effects))
		}
	}
	for s := queued; s <= unreleased; s++ {
		fmt.Fprintf(&b, "%s\n", shown(typical(s), nil))
		tell(func() record { return typical(s) }, happenings(s))
	}
	for _, l := range lacks {
		for _, waited := range []time.Duration{0, time.Hour} {
			r := typical(queued)
			r.inquiry, r.tries.since = l.inquiry, began.Add(-waited)
			fmt.Fprintf(&b, "%s: %s; it has waited for %v\n", shown(r, nil), l.words, waited)
			tell(func() record { return r }, decisions())
		}
	}
	golden := filepath.Join("testdata", "step.txt")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("differs from %s (go test -rewrite writes it):\n%s", golden, got)
	}
}

// A pod whose controller's pods were rejected lately is held back, and no longer than it was to be
// when it was tried again meanwhile.
func TestStepHoldsBack(t *testing.T) {
	no := decided{Decision: decide.Decision{Outcome: decide.Reject,
		Rejection: &allocation.Rejection{Reason: "OutOfcpu", Message: "too little"}}}
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	r, _ := typical(queued).step(no, conditions{now: began, wait: time.Minute, held: at(10)})
	if got := shown(r, nil); got != "heldBack, due in 10s" {
		t.Fatalf("at first: %s", got)
	}
	r, _ = r.step(moved{}, conditions{now: at(5), wait: time.Minute})
	r, _ = r.step(no, conditions{now: at(5), wait: time.Minute, held: at(40)})
	if got := shown(r, nil); got != "heldBack, due in 10s" {
		t.Fatalf("tried again: %s", got)
	}
	r, _ = r.step(late{}, conditions{now: at(10), wait: time.Minute})
	if r, _ = r.step(no, conditions{now: at(10), wait: time.Minute}); r.state != rejected {
		t.Fatalf("in the end: %s", shown(r, nil))
	}
}

// A pod that loses its claim to one ahead while it is asked about has nothing until it is decided on again.
func TestDisplacedWhileAsked(t *testing.T) {
	for _, s := range []state{asking, inquiring, rereading} {
		r := typical(s)
		r.has = reservation{claimed, holding("claimed")}
		if !s.mayBeDisplaced() {
			t.Errorf("%s: others cannot have its claim", s)
		}
		kept, _ := r.step(displaced{}, conditions{now: began})
		if kept.state != s || !kept.isReserved() {
			t.Errorf("%s: with a claim that is good it is %s and has %v", s, kept.state, kept.has)
		}
		lost, effects := r.step(displaced{true}, conditions{now: began})
		if lost.state != s || lost.isReserved() || !lost.claims() || len(effects) > 0 {
			t.Errorf("%s: without its claim it is %s and has %v; %v", s, lost.state, lost.has, effects)
		}
		if lost.question.void != (s == asking) {
			t.Errorf("%s: the question is void: %t", s, lost.question.void)
		}
	}
}
