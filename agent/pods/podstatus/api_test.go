package podstatus

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
)

// published is a pod whose status the API server has.
func published(phase v1.PodPhase, reason string) *v1.Pod {
	p := named("u", "a")
	p.Status = v1.PodStatus{Phase: phase, Reason: reason, StartTime: &metav1.Time{},
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", RestartCount: 2}}}
	return p
}

// An end that the API server was told before, or that is one of admission, stays as it was told
// while nothing of the pod is to be seen; what is to be seen is told.
func TestEndsThatWereReported(t *testing.T) {
	ended := podworker.Report{
		Decision: podworker.Decision{State: podworker.Finished}, Stop: &podworker.Stop{},
	}
	for name, begin := range map[string]func(s *Store, p *v1.Pod){
		"told before": func(s *Store, p *v1.Pod) { s.write(pod.StatusPending, p, "") },
		"rejected": func(s *Store, p *v1.Pod) {
			s.write(pod.StatusPending, named("u", "a"), "")
			s.write(pod.StatusRejected, uid("u"), "OutOfcpu")
		},
	} {
		s := New(Config{})
		r := Reporter{Statuses: s, Terminations: lastWords{}}
		p := published(v1.PodFailed, "Evicted")
		begin(s, p)
		before := s.List()[0].Status
		s.write(pod.StatusAdmitted, uid("u"), "")
		ended.Pod = p
		r.Report(ended)
		if got := s.List()[0].Status; !equality.Semantic.DeepEqual(got, before) {
			t.Errorf("%s: it became %+v", name, got)
		}
		seen := ended
		seen.Observed = cri.Pod{UID: "u", Containers: []cri.Container{{
			ID: "c", Name: "main", State: cri.ContainerExited, Exit: cri.Exit{Code: 3}}}}
		r.Report(seen)
		got := s.List()[0].Status
		if got.Phase != v1.PodFailed || got.Reason != before.Reason ||
			len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].State.Terminated == nil ||
			got.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			t.Errorf("%s: with a container to be seen it became %+v", name, got)
		}
	}
}

// What is written says whether anything is known of the pod yet, and that it is cleared, until it
// begins anew.
func TestFirstAndCleared(t *testing.T) {
	var last Change
	s := New(Config{Wrote: func(c Change) { last = c }})
	r := Reporter{Statuses: s, Terminations: lastWords{}}
	p := published(v1.PodRunning, "")
	for _, step := range []struct {
		name           string
		do             func()
		first, cleared bool
	}{
		{"desired", func() { s.write(pod.StatusPending, p, "") }, true, false},
		{"admitted", func() { s.write(pod.StatusAdmitted, uid("u"), "") }, true, false},
		{"seen", func() {
			r.Report(podworker.Report{
				Pod: p, Decision: podworker.Decision{State: podworker.SyncPod}})
		}, false, false},
		{"cleared", func() { s.write(pod.StatusCleared, uid("u"), "") }, false, true},
		{"another spec", func() { s.write(pod.StatusKept, p, "") }, false, true},
		{"desired anew", func() { s.write(pod.StatusPending, p, "") }, true, false},
		{"waits", func() { s.write(pod.StatusWaiting, uid("u"), "Waiting") }, false, false},
	} {
		if step.do(); last.First != step.first || last.Cleared != step.cleared {
			t.Errorf("%s: first %t, cleared %t", step.name, last.First, last.Cleared)
		}
	}
}

// A spec that changes after the pod's end is one that its status is of: nobody takes it up.
func TestGenerationAfterTheEnd(t *testing.T) {
	s := New(Config{})
	s.write(pod.StatusPending, published(v1.PodSucceeded, ""), "")
	changed := published(v1.PodSucceeded, "")
	changed.Generation = 4
	s.write(pod.StatusKept, changed, "")
	if got := s.List()[0].Status.ObservedGeneration; got != 4 {
		t.Errorf("generation %d was observed", got)
	}
}

// What others write into the status of a pod is taken beside what is known here, and said as far as
// anything follows from it.
func TestReconcile(t *testing.T) {
	condition := func(kind v1.PodConditionType) []v1.PodCondition {
		return []v1.PodCondition{{Type: kind, Status: v1.ConditionTrue}}
	}
	for name, test := range map[string]struct {
		api   v1.PodStatus
		want  pod.News
		taken int // conditions of others
	}{
		"nothing":           {v1.PodStatus{Phase: v1.PodRunning}, pod.NoNews, 0},
		"a note":            {v1.PodStatus{Conditions: condition("example.com/note")}, pod.NoNews, 1},
		"a gate":            {v1.PodStatus{Conditions: condition("example.com/gate")}, pod.GateNews, 1},
		"one that is ours":  {v1.PodStatus{Conditions: condition(v1.PodReady)}, pod.NoNews, 0},
		"that it has ended": {v1.PodStatus{Phase: v1.PodFailed}, pod.EndNews, 0},
	} {
		s, p := New(Config{}), named("u", "a")
		if got := s.Reconcile(p); got != pod.NoNews {
			t.Errorf("%s of a pod that is not known: %v", name, got)
		}
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		s.write(pod.StatusPending, p, "")
		before := s.Status("u")
		changed := p.DeepCopy()
		changed.Status = test.api
		if got := s.Reconcile(changed); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if at, _ := s.AtSource("u"); (at.Status.Phase == v1.PodFailed) != (test.want == pod.EndNews) {
			t.Errorf("%s: its source has it as %q", name, at.Status.Phase)
		}
		after := s.Status("u")
		if got := len(after.Conditions) - len(before.Conditions); got != test.taken ||
			after.Phase != v1.PodPending {
			t.Errorf("%s: %d conditions more, want %d, in %s", name, got, test.taken, after.Phase)
		}
	}
}
