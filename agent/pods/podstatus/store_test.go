package podstatus

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

func named(uid, name string, options ...podtest.Option) *v1.Pod {
	return podtest.New(name, append(options, podtest.UID(uid), podtest.Containers("main"))...)
}

func uid(of types.UID) *v1.Pod { return named(string(of), "") }

// write has the store carry out a Write of a pod with the facts that its record would have. A pod
// without a name keeps its spec.
func (s *Store) write(kind pod.StatusKind, p *v1.Pod, why string) {
	e, known := s.table.get(p.UID)
	f := pod.Effect{Kind: pod.Write, Facts: e.Facts, Status: kind, Why: pod.Why{Reason: why}}
	if p.Name != "" || !known {
		f.Pod = p
	}
	switch kind {
	case pod.StatusPending:
		f.Facts = pod.Facts{Spec: f.Spec, EndedUnseen: podspec.Ended(p.Status.Phase)}
	case pod.StatusAdmitted:
		f.Admitted = true
	case pod.StatusRejected:
		f.EndedUnseen = true
	case pod.StatusCleared:
		f.Cleared = true
	}
	s.Write(f)
}

func woken(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestLimited(t *testing.T) {
	s := New(Config{})
	limited := named("limited", "b")
	limited.Spec.ActiveDeadlineSeconds = new(int64)
	for _, p := range []*v1.Pod{named("u", "a"), limited} {
		s.write(pod.StatusPending, p, "")
	}
	got := s.Limited()
	if len(got) != 1 || got[0].UID != "limited" || got[0].Status.Phase != v1.PodPending {
		t.Errorf("%d pods have a deadline, among them %v", len(got), got)
	}
}

// A pod goes through what admission and its node say of it; who watches is woken when other pods
// hold resources of the node, when its phase is another, and when it is cleared.
func TestStatusesInTurn(t *testing.T) {
	var written []string
	s := New(Config{
		HostIPs: func() []string { return []string{"10.0.0.1"} },
		Wrote: func(c Change) {
			written = append(written, string(c.Before.Phase)+">"+string(c.After.Phase))
		},
	})
	changed := mailbox.Subscribe(s.Changes())
	for _, step := range []struct {
		name          string
		do            func()
		phase         v1.PodPhase
		reason        string
		active, woken bool
	}{
		{"desired", func() { s.write(pod.StatusPending, named("u", "a"), "") },
			v1.PodPending, "", false, true},
		{"waits", func() { s.write(pod.StatusWaiting, uid("u"), "Waiting") },
			v1.PodPending, "Waiting", false, false},
		{"admitted", func() { s.write(pod.StatusAdmitted, uid("u"), "") },
			v1.PodPending, "", true, true},
		{"another spec", func() { s.write(pod.StatusKept, named("u", "b"), "") },
			v1.PodPending, "", true, true},
		{"cleared", func() { s.write(pod.StatusCleared, uid("u"), "") },
			v1.PodPending, "", true, true},
		{"desired anew", func() { s.write(pod.StatusPending, named("u", "b"), "") },
			v1.PodPending, "", false, true},
		{"rejected", func() { s.write(pod.StatusRejected, uid("u"), "OutOfcpu") },
			v1.PodFailed, "OutOfcpu", false, true},
	} {
		step.do()
		got := s.List()[0]
		if got.Status.Phase != step.phase || got.Status.Reason != step.reason ||
			len(s.Active()) > 0 != step.active || woken(changed) != step.woken {
			t.Errorf("%s: %s %q, active %d; want %s %q, active %t, woken %t", step.name,
				got.Status.Phase, got.Status.Reason, len(s.Active()), step.phase, step.reason,
				step.active, step.woken)
		}
	}
	if p, ok := s.Get("u"); !ok || p.Name != "b" {
		t.Errorf("the spec is that of %v", p)
	}
	s.Forget("u")
	if !woken(changed) {
		t.Error("a pod was forgotten, and who watches sleeps on")
	}
	s.write(pod.StatusRejected, uid("u"), "late")
	if len(s.List()) > 0 {
		t.Error("a pod that was forgotten is listed")
	}
	if got := strings.Join(written, " "); got != ">Pending Pending>Pending Pending>Pending "+
		"Pending>Pending Pending>Pending >Pending Pending>Failed Failed>" {
		t.Errorf("written was %s", got)
	}
}

// Writers that meet lose nothing, and a pod that was forgotten and came again is another one.
func TestWritersMeet(t *testing.T) {
	s := New(Config{})
	s.write(pod.StatusPending, named("u", "a"), "")
	before, _ := s.table.get("u")
	s.Forget("u")
	s.write(pod.StatusPending, named("u", "a"), "")
	if s.table.replace(before, before) {
		t.Error("what was made of the earlier pod replaced the new one's")
	}
	var writers sync.WaitGroup
	for range 100 {
		writers.Go(func() {
			s.table.update("u", func(e entry) entry {
				e.status.ObservedGeneration++
				return e
			})
		})
	}
	writers.Wait()
	if got, _ := s.table.get("u"); got.status.ObservedGeneration != 100 {
		t.Errorf("%d of 100 changes are there", got.status.ObservedGeneration)
	}
}

// Who is told of statuses is told of the newest one last, however writers meet.
func TestToldInOrder(t *testing.T) {
	held, started := make(chan struct{}), make(chan struct{})
	var reported []Change
	s := New(Config{Wrote: func(c Change) {
		if len(reported) == 1 { // of the worker's first status
			close(started)
			<-held
		}
		reported = append(reported, c)
	}})
	saw := func(phase v1.PodPhase) {
		s.table.update("u", func(e entry) entry {
			e.status.Phase = phase
			return e
		})
	}
	s.write(pod.StatusPending, named("u", "first"), "")
	var writers sync.WaitGroup
	writers.Go(func() { saw(v1.PodRunning) })
	<-started
	writers.Go(func() {
		s.write(pod.StatusKept, named("u", "second"), "")
		saw(v1.PodSucceeded)
	})
	time.Sleep(20 * time.Millisecond) // in which one that does not wait for its turn would be told of
	close(held)
	writers.Wait()
	last := reported[len(reported)-1]
	if len(reported) != 4 || last.Pod.Name != "second" || last.After.Phase != v1.PodSucceeded {
		t.Errorf("of %d the last one told is %s %s", len(reported), last.Pod.Name, last.After.Phase)
	}
	for i, c := range reported[1:] {
		if c.Before.Phase != reported[i].After.Phase {
			t.Errorf("%s was told after %s", c.Before.Phase, reported[i].After.Phase)
		}
	}
}

// The end of a pod that holds something is told to the node before anybody can see it, once.
func TestEndingComesFirst(t *testing.T) {
	var reported []string
	var s *Store
	s = New(Config{
		Ending: func(uid types.UID) {
			reported = append(reported, "ending "+string(s.table.entries[uid].status.Phase))
		},
		Wrote: func(c Change) { reported = append(reported, string(c.After.Phase)) },
	})
	s.write(pod.StatusPending, named("u", "a"), "")
	s.write(pod.StatusAdmitted, uid("u"), "")
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodSucceeded, v1.PodSucceeded} {
		s.table.update("u", func(e entry) entry {
			e.status.Phase = phase
			return e
		})
	}
	s.write(pod.StatusPending, named("v", "b"), "")
	s.write(pod.StatusRejected, uid("v"), "OutOfcpu") // it holds nothing
	if got := strings.Join(reported, ", "); got != "Pending, Pending, Running, ending Running, "+
		"Succeeded, Succeeded, Pending, Failed" {
		t.Errorf("told were %s", got)
	}
}

// A pod that has ended is listed among those that hold resources as long as it has any.
func TestHolding(t *testing.T) {
	s := New(Config{})
	for _, uid := range []string{"runs", "ended", "released", "undecided"} {
		s.write(pod.StatusPending, named(uid, uid), "")
	}
	for _, uid := range []types.UID{"runs", "ended", "released"} {
		s.write(pod.StatusAdmitted, named(string(uid), ""), "")
	}
	for _, uid := range []types.UID{"ended", "released"} {
		s.table.update(uid, func(e entry) entry {
			e.status.Phase = v1.PodSucceeded
			return e
		})
	}
	var got []string
	for _, p := range s.Holding(func(uid types.UID) bool { return uid != "released" }) {
		got = append(got, p.Name)
	}
	slices.Sort(got)
	if want := []string{"ended", "runs"}; !slices.Equal(got, want) {
		t.Errorf("%q hold resources, want %q", got, want)
	}
}

type lastWords struct{}

func (lastWords) TerminationMessage(_ *v1.Pod, c *v1.Container, _ volume.Exit) (string, error) {
	return "last words of " + c.Name, nil
}

// What a worker sees becomes a status with the containers' last words; of an orphan nothing does.
func TestReport(t *testing.T) {
	s := New(Config{})
	r := Reporter{Statuses: s, Terminations: lastWords{}}
	p := named("u", "a")
	s.write(pod.StatusPending, p, "")
	round := podworker.Report{
		Pod: p,
		Observed: cri.Pod{
			UID: "u", Sandboxes: []cri.Sandbox{{ID: "s"}},
			Containers: []cri.Container{{
				ID: "c", Name: "main", SandboxID: "s", State: cri.ContainerExited,
				Exit: cri.Exit{Code: 3},
			}},
		},
		Decision: podworker.Decision{State: podworker.Finished},
		Stop:     &podworker.Stop{Reason: "Evicted", Message: "no memory"},
	}
	orphan := round
	orphan.Stop = &podworker.Stop{Orphan: true}
	r.Report(orphan)
	if got := s.List()[0].Status; got.Phase != v1.PodPending {
		t.Errorf("an orphan's end made the pod of that UID %s", got.Phase)
	}
	r.Report(round)
	got := s.List()[0].Status
	if got.Phase != v1.PodFailed || got.Reason != "Evicted" || len(got.ContainerStatuses) != 1 ||
		!disrupted(got) {
		t.Fatalf("status %+v", got)
	}
	if end := got.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 ||
		end.Message != "last words of main" {
		t.Errorf("the container ended as %+v", end)
	}
}

// A pod that exceeded a limit of its own is not disrupted.
func TestOwnLimit(t *testing.T) {
	s := New(Config{})
	r := Reporter{Statuses: s, Terminations: lastWords{}}
	p := named("u", "a")
	s.write(pod.StatusPending, p, "")
	r.Report(podworker.Report{Pod: p, Decision: podworker.Decision{State: podworker.Finished},
		Stop: &podworker.Stop{Reason: "Evicted", Message: "its disk", OwnLimit: true}})
	if got := s.List()[0].Status; got.Phase != v1.PodFailed || got.Reason != "Evicted" || disrupted(got) {
		t.Errorf("status %+v", got)
	}
}

func disrupted(s v1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
}

// What keeps the node from clearing up after a pod is told while the pod has not ended, and is
// never the reason for which it has.
func TestProblemsPass(t *testing.T) {
	s := New(Config{})
	r := Reporter{Statuses: s, Terminations: lastWords{}}
	p := named("u", "a")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	s.write(pod.StatusPending, p, "")
	for _, step := range []struct {
		state cri.ContainerState
		in    podworker.State
		want  string
	}{
		{cri.ContainerRunning, podworker.SyncPod, "KillPodSandboxError"},
		{cri.ContainerExited, podworker.TerminatingPod, ""},
		{cri.ContainerExited, podworker.Finished, ""},
	} {
		problem := status.Reason{Reason: "KillPodSandboxError", Message: "it runs on"}
		if step.in == podworker.Finished {
			problem = status.Reason{}
		}
		r.Report(podworker.Report{
			Pod: p,
			Observed: cri.Pod{
				UID: "u", Sandboxes: []cri.Sandbox{{ID: "s", Ready: true}},
				Containers: []cri.Container{{ID: "c", Name: "main", SandboxID: "s", State: step.state}},
			},
			Decision: podworker.Decision{State: step.in, Problem: problem},
		})
		if got := s.List()[0].Status; got.Reason != step.want {
			t.Errorf("%s with the container %s: reason %q (%s), want %q", step.in, step.state, got.Reason,
				got.Message, step.want)
		}
	}
}

// A pod that begins again is another life if anything was found out of the first one; it has left
// nothing, and what runs is listed whether it is active or not.
func TestLives(t *testing.T) {
	var again, over []bool
	s := New(Config{Wrote: func(c Change) {
		again, over = append(again, c.Again), append(over, c.LifeOver())
	}})
	left := []bool{s.Left("u")}
	for _, kind := range []pod.StatusKind{pod.StatusPending, pod.StatusPending, pod.StatusAdmitted,
		pod.StatusRejected, pod.StatusPending, pod.StatusPending} {
		s.write(kind, named("u", "a"), "")
		left = append(left, s.Left("u"))
		if kind == pod.StatusRejected {
			for runs, want := range map[types.UID]int{"u": 1, "v": 0} {
				if got := len(s.Running(func(uid types.UID) bool { return uid == runs })); got != want {
					t.Errorf("while %s runs %d are listed, want %d", runs, got, want)
				}
			}
		}
	}
	s.Forget("u")
	left = append(left, s.Left("u"))
	for what, got := range map[string][2][]bool{
		"again": {again, {false, false, false, false, true, false, false}},
		"over":  {over, {false, false, false, false, true, false, true}},
		"left":  {left, {false, false, false, true, true, false, false, false}},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
}
