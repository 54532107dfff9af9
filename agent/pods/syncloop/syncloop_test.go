package syncloop

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/podtest"
)

// notes are what admission, the workers and the recorder of events were told.
type notes struct{ reported []string }

func (n *notes) note(format string, args ...any) {
	n.reported = append(n.reported, fmt.Sprintf(format, args...))
}

func (n *notes) Submit(p *v1.Pod, adopt bool) { n.note("submit %s adopt=%t", p.UID, adopt) }
func (n *notes) Leaving(uid types.UID, ended bool) {
	if n.note("leaving %s", uid); ended {
		n.reported[len(n.reported)-1] += ", it has ended"
	}
}

func (n *notes) Release(uid types.UID) { n.note("release %s", uid) }
func (n *notes) Resize(p *v1.Pod)      { n.note("resize %s", p.UID) }
func (n *notes) Poke()                 { n.note("poke") }
func (n *notes) Wake(uid types.UID)    { n.note("wake %s", uid) }

func (n *notes) Update(d podworker.Desired) { n.note("%s", desired(d)) }
func (n *notes) Hasten(d podworker.Desired) { n.note("hasten %s", desired(d)) }

func desired(d podworker.Desired) string {
	switch {
	case d.Stop == nil:
		return "run " + string(d.Pod.UID)
	case d.Stop.Orphan:
		return "remove orphan " + string(d.Pod.UID)
	case d.Stop.Remove:
		return fmt.Sprintf("remove %s in %v", d.Pod.UID, d.Stop.Grace)
	default:
		return fmt.Sprintf("terminate %s in %v for %q", d.Pod.UID, d.Stop.Grace, d.Stop.Reason) +
			map[bool]string{true: " of its own"}[d.Stop.OwnLimit]
	}
}

// expect takes what was told since the last call.
func (n *notes) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if !slices.Equal(n.reported, want) {
		t.Errorf("%s: told %q, want %q", what, n.reported, want)
	}
	n.reported = nil
}

// newTestLoop is a loop with a runtime that has this of every pod. Nothing runs.
func newTestLoop(observed cri.Pod) (*Loop, *notes) {
	n := &notes{}
	return New(Config{
		Inputs:    Inputs{Events: mailbox.New[Event]()},
		Runtime:   func(types.UID) (cri.Pod, bool) { return observed, len(observed.Sandboxes) > 0 },
		Admission: n, Workers: n, Statuses: podstatus.New(podstatus.Config{}),
		Tell: func(_ *v1.Pod, kind, reason, message string) {
			n.note("%s %s: %s", kind, reason, message)
		},
		Restarted: func(p *v1.Pod) { n.note("restarted %s", p.UID) },
		SeenAll:   func(seen func(string) bool) bool { return seen("file") },
	}), n
}

func examplePod() *v1.Pod {
	return podtest.New("a", podtest.UID("u"), podtest.Containers("main"))
}

func (l *Loop) says(t *testing.T, op source.Op) {
	l.update(t.Context(), source.Update{Op: op, Source: "file", Pods: []*v1.Pod{examplePod()}})
}

func (l *Loop) hears(t *testing.T, kind pod.EventKind) {
	l.cfg.Inputs.Events.Put(Event{UID: "u", Event: pod.Event{Kind: kind, Pod: examplePod()}})
	l.takeEvents(t.Context())
}

func (l *Loop) lists() (names []string) {
	for _, p := range l.cfg.Statuses.List() {
		names = append(names, p.Name)
	}
	return names
}

// A pod that is withdrawn before admission spoke is forgotten when the runtime has nothing of it,
// and stopped first when it runs from before: its CPUs and devices are in use.
func TestWithdrawnBeforeItWasDecided(t *testing.T) {
	for name, test := range map[string]struct {
		observed cri.Pod
		want     []string
		listed   int
	}{
		"new": {cri.Pod{}, []string{"submit u adopt=false", "release u"}, 0},
		"runs from before": {
			cri.Pod{UID: "u", Namespace: "default", Name: "a",
				Sandboxes: []cri.Sandbox{{Ready: true}}},
			[]string{"submit u adopt=true", "leaving u", "remove u in 30s", "hasten remove u in 30s"},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, reported := newTestLoop(test.observed)
			l.says(t, source.ADD)
			l.says(t, source.REMOVE)
			if got := l.lists(); len(got) != test.listed {
				t.Errorf("%q are listed, want %d", got, test.listed)
			}
			l.says(t, source.REMOVE)
			reported.expect(t, "withdrawn twice", test.want...)
		})
	}
}

// While what an earlier run of the agent left of a pod is removed, a source desires the pod: it is
// listed at once, decided on when nothing is left of the old one, and runs with a record.
func TestDesiredWhileItsRemainsAreRemoved(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{})
	l.hears(t, pod.Orphaned)
	reported.expect(t, "before every source was heard")
	l.seen["file"] = true
	l.hears(t, pod.Orphaned)
	reported.expect(t, "an orphan", "remove orphan u")
	if got := l.lists(); len(got) > 0 {
		t.Errorf("%q are listed, of which nobody has spoken", got)
	}
	l.says(t, source.ADD)
	reported.expect(t, "desired while it is removed")
	if got := l.lists(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q are listed, want the pod that is desired", got)
	}
	l.hears(t, pod.Orphaned)
	l.hears(t, pod.Gone)
	reported.expect(t, "nothing is left", "release u")
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Released})
	reported.expect(t, "nothing is held", "submit u adopt=false")
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Admit})
	l.hears(t, pod.Gone) // late
	reported.expect(t, "admitted", "run u")
	if r := l.records["u"]; r.State != pod.Running || !slices.Equal(l.lists(), []string{"a"}) {
		t.Errorf("a pod that runs is in state %s, and %q are listed", r.State, l.lists())
	}
}

// What there is not to say is left out of the log.
func TestLogged(t *testing.T) {
	result := report.Result{Pod: &v1.Pod{}, Reason: "WaitingForDevicePlugin", Message: "none"}
	if values := logged(result); len(values) != 6 || slices.Contains(values, any("explanation")) {
		t.Errorf("without an explanation the log has %v", values)
	}
	result.Explained = "1 asked for"
	if values := logged(result); len(values) != 8 || values[6] != "explanation" ||
		values[7] != "1 asked for" {
		t.Errorf("with an explanation the log has %v", values)
	}
}

// An event comes once for each reason; a pod that runs and lacks something is told of as well.
func TestEventsOfDecisions(t *testing.T) {
	waits := report.Result{
		Outcome: decide.Wait, Reason: "WaitingForDevicePlugin", Message: "no answer",
		Explained: "why",
	}
	for name, test := range map[string]struct {
		results []report.Result
		want    []string
	}{
		"waits, and is admitted": {
			[]report.Result{
				waits,
				{
					Outcome: decide.Wait, Reason: "WaitingForDevicePlugin",
					Message: "it failed", Reworded: true,
				},
				{Outcome: decide.Wait, Reason: "WaitingForResources", Message: "held"},
				{Outcome: decide.Admit},
			},
			[]string{
				"Normal WaitingForDevicePlugin: no answer; why", "Normal WaitingForResources: held",
				"run u",
			},
		},
		"rejected": {
			[]report.Result{{
				Outcome: decide.Reject, Reason: "OutOfcpu", Message: "too few",
				Explained: "would fit: 1",
			}},
			[]string{"Warning OutOfcpu: too few; would fit: 1"},
		},
		"adopted": {
			[]report.Result{{
				Outcome: decide.Admit, Reason: "AdoptedWithoutResources", Message: "it lacks 1",
				Explained: "not for the event",
			}},
			[]string{"Warning AdoptedWithoutResources: it lacks 1", "run u"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, reported := newTestLoop(cri.Pod{})
			l.says(t, source.ADD)
			reported.reported = nil
			for _, r := range test.results {
				r.Pod = examplePod()
				l.decided(t.Context(), r)
			}
			reported.expect(t, name, test.want...)
		})
	}
}

// A pod that the node ends keeps its status until its source has it no more.
func TestKilled(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{})
	l.says(t, source.ADD)
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Admit})
	reported.reported = nil
	l.cfg.Inputs.Events.Put(Event{UID: "u", Event: pod.Event{
		Kind: pod.Killed, Grace: 5e9, Why: pod.Why{Reason: "Evicted", Message: "no memory", OwnLimit: true},
	}})
	l.takeEvents(t.Context())
	reported.expect(t, "evicted", "leaving u", `terminate u in 5s for "Evicted" of its own`)
	l.hears(t, pod.Ended)
	reported.expect(t, "terminated", "release u")
	l.says(t, source.UPDATE)
	reported.expect(t, "a changed spec")
	if got := l.lists(); len(got) != 1 {
		t.Errorf("%q are listed", got)
	}
	l.says(t, source.REMOVE)
	reported.expect(t, "removed", "remove u in 30s")
}

// What the runtime has under the UID of a pod may be another pod, by its name: it is removed before
// the pod that is desired begins, and not adopted as that.
func TestAnotherPodRunsUnderTheUID(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{
		UID: "u", Namespace: "default", Name: "before", Sandboxes: []cri.Sandbox{{Ready: true}},
	})
	l.says(t, source.ADD)
	reported.expect(t, "desired under another name", "remove orphan u")
	if got := l.lists(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q are listed, want the pod that is desired", got)
	}
	l.says(t, source.UPDATE)
	reported.expect(t, "desired again")
	l.hears(t, pod.Gone)
	reported.expect(t, "nothing is left", "release u")
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Released})
	reported.expect(t, "nothing is held", "submit u adopt=false")
}
