package syncloop

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// said is a pod of the API server's with a status.
func said(s v1.PodStatus) *v1.Pod {
	p := examplePod()
	p.Status = s
	return p
}

func (l *Loop) apiSays(t *testing.T, op source.Op, p *v1.Pod) {
	l.update(t.Context(), source.Update{Op: op, Source: podspec.APISource, Pods: []*v1.Pod{p}})
}

// A pod that the API server says has ended is not admitted and never started: its worker finds that
// it has ended. Its status stays as the API server has it, and it holds nothing in the end.
func TestEndedByTheAPIServer(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{})
	failed := v1.PodStatus{
		Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: too few",
		StartTime: &metav1.Time{},
	}
	l.apiSays(t, source.ADD, said(failed))
	reported.expect(t, "it ended before", "leaving u, it has ended", "run u")
	l.hears(t, pod.Ended)
	reported.expect(t, "its worker saw that", "release u")
	if got := l.cfg.Statuses.List()[0].Status; !equality.Semantic.DeepEqual(got, failed) {
		t.Errorf("its status became %+v", got)
	}
	if n := len(l.cfg.Statuses.Active()); n > 0 {
		t.Errorf("%d pods hold resources", n)
	}
}

// Of what others write into a status the end of a pod ends it, a condition of a readiness gate has
// its worker look, and nothing else has anything done: least of all what the agent wrote itself.
func TestReconcile(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{})
	gated := func(s v1.PodStatus) *v1.Pod {
		p := said(s)
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/open"}}
		return p
	}
	l.apiSays(t, source.ADD, gated(v1.PodStatus{Phase: v1.PodPending}))
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Admit})
	reported.reported = nil
	own := l.cfg.Statuses.List()[0].Status
	l.apiSays(t, source.RECONCILE, gated(own))
	reported.expect(t, "what was written here")

	open := *own.DeepCopy()
	open.Conditions = append(open.Conditions,
		v1.PodCondition{Type: "example.com/open", Status: v1.ConditionTrue})
	l.apiSays(t, source.RECONCILE, gated(open))
	reported.expect(t, "a readiness gate", "wake u")
	l.apiSays(t, source.RECONCILE, gated(open))
	reported.expect(t, "again")
	open.Conditions = append(open.Conditions,
		v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue})
	l.apiSays(t, source.RECONCILE, gated(open))
	reported.expect(t, "a condition that nothing waits for")
	if got := l.cfg.Statuses.List()[0].Status.Conditions; len(got) != len(open.Conditions) {
		t.Errorf("conditions %+v", got)
	}

	open.Phase = v1.PodFailed
	l.apiSays(t, source.RECONCILE, gated(open))
	reported.expect(t, "its end", "leaving u, it has ended", "run u")
}

// A pod that the API server has no more was deleted by force, and its grace period is the least
// there is; a pod of a file keeps its own.
func TestRemovedFromTheAPIServer(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{Sandboxes: []cri.Sandbox{{Ready: true}}, UID: "u",
		Namespace: "default", Name: "a"})
	l.apiSays(t, source.ADD, examplePod())
	reported.reported = nil
	l.apiSays(t, source.REMOVE, examplePod())
	reported.expect(t, "removed", "leaving u", "remove u in 0s")
}

// A pod that is to be deleted is cleared when its worker has ended it and nothing is held, in this
// order, also if it never ran; not before.
func TestCleared(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{})
	var cleared bool
	l.cfg.Statuses = podstatus.New(podstatus.Config{
		Wrote: func(c podstatus.Change) { cleared = c.Cleared },
	})
	l.apiSays(t, source.ADD, examplePod())
	deleted := examplePod()
	deleted.DeletionTimestamp = &metav1.Time{}
	l.apiSays(t, source.DELETE, deleted)
	reported.expect(t, "deleted while it is decided on",
		"submit u adopt=false", "leaving u", `terminate u in 30s for ""`)
	if l.hears(t, pod.Ended); cleared {
		t.Error("it is cleared while it holds something")
	}
	reported.expect(t, "ended", "release u")
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Released})
	if !cleared {
		t.Error("it is not cleared")
	}
}

// That every source was heard is told once, when what each had at first was handled and not before.
func TestHeard(t *testing.T) {
	l, _ := newTestLoop(cri.Pod{})
	heard := 0
	l.cfg.Heard = func() { heard++ }
	if l.hearing(); heard > 0 {
		t.Error("told before anything was heard")
	}
	l.apiSays(t, source.ADD, examplePod())
	if l.hearing(); heard > 0 {
		t.Error("told before the file was heard")
	}
	l.says(t, source.REMOVE)
	for range 2 {
		if l.hearing(); heard != 1 {
			t.Errorf("told %d times", heard)
		}
	}
}

// What the node found out of a pod is handled before an update that came after it: the API server
// may have promised the pod's room to another one.
func TestEndsComeBeforeUpdates(t *testing.T) {
	updates := make(chan source.Update)
	for range 20 { // select chooses at random
		l, reported := newTestLoop(cri.Pod{})
		l.apiSays(t, source.ADD, examplePod())
		l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Admit})
		reported.reported = nil
		l.cfg.Inputs = Inputs{
			Updates: updates, Events: mailbox.New[Event](),
			Decisions: mailbox.New[report.Result](),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		l.cfg.Inputs.Events.Put(Of("u", pod.Ending))
		go func() { ran <- l.Run(ctx) }()
		next := examplePod()
		next.UID, next.Name = "next", "b"
		updates <- source.Update{Op: source.ADD, Source: podspec.APISource, Pods: []*v1.Pod{next}}
		updates <- source.Update{Source: podspec.APISource, Op: source.ADD} // the first was handled
		cancel()
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		reported.expect(t, "a pod that came after the end", "leaving u, it has ended",
			"submit next adopt=false")
	}
}
