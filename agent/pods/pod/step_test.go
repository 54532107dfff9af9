package pod

import (
	"bytes"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/goldentest"
	"github.com/numalet/numalet/internal/podtest"
)

// TestTransitions shows what follows from each event in each state.
func TestTransitions(t *testing.T) {
	var out bytes.Buffer
	for _, r := range []Record{
		{State: None},
		{State: Deciding, Hold: Held},
		{State: Deciding, Hold: Held, OnNode: true},
		{State: Rejected, Hold: Held},
		{State: Running, Hold: Held, OnNode: true, Admitted: true},
		{State: Completed, Hold: Free, OnNode: true},
		{State: Terminating, Hold: Held, OnNode: true},
		{State: Terminating, Hold: Held, OnNode: true, Killed: true},
		{State: Terminated, Hold: Returning},
		{State: Terminated, Hold: Free, OnNode: true, Killed: true},
		{State: Removing, Hold: Held, OnNode: true},
		{State: Removing, Hold: Held, OnNode: true, Orphan: true},
		{State: Removing, Hold: Free, OnNode: true, Next: &v1.Pod{}},
		{State: Releasing, Hold: Returning},
		{State: Releasing, Hold: Returning, Next: &v1.Pod{}},
	} {
		if r.State != None {
			r.Pod = &v1.Pod{}
		}
		fmt.Fprintf(&out, "%s\n", describe(r))
		for _, e := range []Event{
			{Kind: Desired}, {Kind: Desired, Runtime: Runtime{Recorded: true, Running: true}},
			{Kind: Desired, Runtime: Runtime{Recorded: true, Ended: true}},
			{Kind: Desired, Runtime: Runtime{Recorded: true, Running: true}, Why: Why{Reason: "Evicted"}},
			{Kind: Desired, Runtime: Runtime{Recorded: true, Ended: true}, Why: Why{Reason: "Evicted"}},
			{Kind: Desired, Runtime: Runtime{Recorded: true, Pod: podtest.New("another")}},
			{Kind: Deleted}, {Kind: Retried}, {Kind: Removed}, {Kind: Removed, FromAPI: true},
			{Kind: Reconciled}, {Kind: Reconciled, News: GateNews},
			{Kind: Reconciled, News: EndNews, Runtime: Runtime{Recorded: true, Ended: true}},
			{Kind: Orphaned}, {Kind: Orphaned, Heard: true},
			{Kind: Killed, Why: Why{Reason: "Evicted"}},
			{Kind: Observed, Runtime: Runtime{Recorded: true}},
			{Kind: Admitted}, {Kind: Admitted, Why: Why{Reason: "Lacks"}},
			{Kind: Waits, Why: Why{Reason: "Waiting"}},
			{Kind: Waits, Why: Why{Reason: "Waiting", Silent: true}},
			{Kind: Refused, Why: Why{Reason: "OutOfcpu"}},
			{Kind: Released}, {Kind: Ending}, {Kind: Ended}, {Kind: Gone},
		} {
			e.Pod = &v1.Pod{}
			if e.Kind == Deleted {
				e.Pod.DeletionTimestamp = &metav1.Time{}
			}
			next, effects := Step(r, e)
			if len(effects) == 0 && describe(next) == describe(r) {
				continue // it comes too late, or changes nothing
			}
			fmt.Fprintf(&out, "  %-26s -> %s\n", describeEvent(e), describe(next))
			for _, f := range effects {
				fmt.Fprintf(&out, "%32s%s\n", "", describeEffect(f))
			}
		}
	}
	goldentest.Compare(t, "testdata/transitions.txt", out.String())
}

// note adds a word for what is true.
func note(text string, is bool, word string) string {
	if is {
		return text + " " + word
	}
	return text
}

func describe(r Record) string {
	if r.State == None {
		return "no record"
	}
	s := note(string(r.State), r.Hold != Free, string(r.Hold))
	s = note(note(s, r.OnNode, "on-node"), r.Orphan, "orphan")
	s = note(note(s, r.Admitted, "admitted"), r.EndedUnseen, "ended-unseen")
	return note(note(s, r.Killed, "killed"), r.Next != nil, "desired-again")
}

func describeEvent(e Event) string {
	s := note(string(e.Kind), e.Runtime.Running, "while it runs")
	s = note(s, e.Runtime.Ended, "after its end")
	s = note(s, e.Kind == Desired && e.Why.Reason != "", "doomed")
	s = note(s, e.Kind == Observed && e.Runtime.Recorded, "something")
	s = note(note(s, e.Runtime.Pod != nil, "beside another"), e.FromAPI, "by force")
	s = note(note(s, e.News != NoNews, string(e.News)), e.Heard, "heard")
	return note(note(s, e.Why.Reason != "", e.Why.Reason), e.Why.Silent, "silent")
}

func describeEffect(f Effect) string {
	s := note(string(f.Kind), f.Status != "", string(f.Status))
	s = note(note(note(s, f.Adopt, "adopt"), f.Orphan, "orphan"), f.Ended, "after its end")
	s = note(note(s, f.Warning, "warning"), f.Why.Reason != "", f.Why.Reason)
	return note(s, f.Pod.DeletionGracePeriodSeconds != nil, "in 0 s")
}

// A spec that changes is followed until the pod is gone, and the one that was desired last is begun
// with after that.
func TestTheNewestSpecCounts(t *testing.T) {
	version := func(text string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: text}}
	}
	var r Record
	feed := func(kind EventKind, text string) (effects []Effect) {
		r, effects = Step(r, Event{Kind: kind, Pod: version(text)})
		return effects
	}
	feed(Desired, "1")
	feed(Desired, "2")
	feed(Admitted, "")
	if got := feed(Desired, "3"); got[len(got)-1].Kind != Run ||
		got[len(got)-1].Pod.ResourceVersion != "3" {
		t.Errorf("a changed spec has effects %v", got)
	}
	feed(Removed, "3")
	feed(Desired, "4")
	feed(Desired, "5")
	if r.Pod.ResourceVersion != "3" || r.Next.ResourceVersion != "5" {
		t.Errorf("pod %s is being removed and %s comes next", r.Pod.ResourceVersion,
			r.Next.ResourceVersion)
	}
	feed(Gone, "")
	got := feed(Released, "")
	if r.State != Deciding || r.Pod.ResourceVersion != "5" ||
		got[len(got)-1].Pod.ResourceVersion != "5" {
		t.Errorf("state %s of pod %s after %v", r.State, r.Pod.ResourceVersion, got)
	}
}

// Another pod of the same UID is begun with when the first is gone and released, whatever state it
// is in and in whatever order its source speaks; and what is said of the first is not of the other.
func TestAnotherPodOfTheSameUID(t *testing.T) {
	a, b := podtest.New("n/a"), podtest.New("n/b")
	for _, r := range []Record{
		{State: Deciding, Hold: Held}, {State: Deciding, Hold: Held, OnNode: true},
		{State: Rejected, Hold: Held}, {State: Running, Hold: Held, OnNode: true},
		{State: Completed, Hold: Free, OnNode: true},
		{State: Terminating, Hold: Held, OnNode: true},
		{State: Terminated, Hold: Free, OnNode: true, Killed: true},
		{State: Removing, Hold: Held, OnNode: true}, {State: Releasing, Hold: Returning},
		{State: Removing, Hold: Held, OnNode: true, Orphan: true},
	} {
		for name, says := range map[string][]Event{
			"desired":               {{Kind: Desired, Pod: b}},
			"removed, desired":      {{Kind: Removed, Pod: a}, {Kind: Desired, Pod: b}},
			"desired, removed":      {{Kind: Desired, Pod: b}, {Kind: Removed, Pod: a}},
			"desired while it runs": {{Kind: Desired, Pod: b, Runtime: Runtime{Running: true}}},
		} {
			r := r
			r.Pod = a
			var last []Effect
			for _, e := range append(says, Event{Kind: Gone}, Event{Kind: Released}) {
				if r, last = Step(r, e); r.State == Running {
					t.Errorf("%s, %s: runs after %s", describe(r), name, e.Kind)
				}
			}
			if r.State != Deciding && len(last) == 0 { // it was released before
				r, last = Step(r, Event{Kind: Released})
			}
			if r.State != Deciding || r.Pod != b || r.Next != nil {
				t.Errorf("%s, %s: ends %s with pod %v", describe(r), name, r.State, r.Pod)
			}
			for _, f := range last {
				if f.Kind == Submit && (f.Pod != b || f.Adopt) {
					t.Errorf("%s: %s is submitted, adopt %t", name, f.Pod.Name, f.Adopt)
				}
			}
		}
	}
}
